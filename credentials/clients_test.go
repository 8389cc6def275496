package credentials

import "testing"

func TestOnlySTSIsReachedThroughAProxy(t *testing.T) {
	if newMetadataHTTPClient().GetTransport().Proxy != nil {
		t.Error("got a proxy for the metadata service, want none")
	}
	if newHTTPClient().GetTransport().Proxy == nil {
		t.Error("got no proxy for STS, want that of the environment")
	}
}

func TestSTSClientGivesUpInTimeForAnotherAttempt(t *testing.T) {
	client := newHTTPClient()
	transport := client.GetTransport()
	if client.GetTimeout() == 0 || client.GetDialer().Timeout == 0 || transport.TLSHandshakeTimeout == 0 || transport.ResponseHeaderTimeout == 0 {
		t.Error("got a client with a time-out missing, want all of them")
	}
}
