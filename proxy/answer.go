package proxy

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Content types of EC2's answers.
const (
	plainText = "text/plain"
	xhtml     = "text/html"
)

// timeFormat is the only one that every SDK reads: RFC 3339 in UTC, whole seconds.
const timeFormat = "2006-01-02T15:04:05Z"

// comeAgain is the Retry-After of answers that may be different soon.
const comeAgain = time.Second

// answer writes a whole answer. It is the only place where a body is written.
func (x *exchange) answer(status int, contentType string, body []byte) {
	h := x.w.Header()
	h.Set("Server", "EC2ws") // jets3t, for one, looks for it: https://github.com/uswitch/kiam/issues/97
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if x.closing.Load() {
		h.Set("Connection", "close")
	}
	x.status = status
	x.w.WriteHeader(status)
	if x.r.Method != http.MethodHead {
		_, _ = x.w.Write(body) // a client that has gone needs no answer
	}
}

// fail answers with an error as EC2 does: a page that says no more than the status.
func (x *exchange) fail(status int, o outcome) {
	x.outcome = o
	x.answer(status, xhtml, errorPage(status))
}

// failAgain is fail for what may be different soon.
func (x *exchange) failAgain(o outcome) {
	x.w.Header().Set("Retry-After", seconds(comeAgain))
	x.fail(http.StatusServiceUnavailable, o)
}

// seconds rounds up, and never to 0: a client that comes back at once learns nothing new.
func seconds(d time.Duration) string {
	return strconv.Itoa(max(1, int((d+time.Second-1)/time.Second)))
}

// errorPage is the body of EC2's errors. The one for 401 has 343 bytes, as seen in
// https://github.com/DataDog/datadog-agent/pull/4857.
func errorPage(status int) []byte {
	title := strconv.Itoa(status) + " - " + http.StatusText(status)
	return []byte(`<?xml version="1.0" encoding="iso-8859-1"?>
<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Transitional//EN"
	"http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd">
<html xmlns="http://www.w3.org/1999/xhtml" xml:lang="en" lang="en">
 <head>
  <title>` + title + `</title>
 </head>
 <body>
  <h1>` + title + `</h1>
 </body>
</html>
`)
}

// unauthorized is the document that EC2 has in place of credentials when the role cannot be assumed. It is the same for
// every role and every reason: the reasons are the operator's.
func unauthorized(now time.Time) []byte {
	return []byte(`{
  "Code" : "AssumeRoleUnauthorizedAccess",
  "Message" : "The role of this pod cannot be assumed. The events of the pod say why.",
  "LastUpdated" : "` + now.UTC().Format(timeFormat) + `"
}`)
}

// rawAnswer is an error answer as bytes, for connections that are closed before anything is read from them.
func rawAnswer(status int) []byte {
	var b bytes.Buffer
	page := errorPage(status)
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\nServer: EC2ws\r\nContent-Type: %s\r\nContent-Length: %d\r\nRetry-After: %s\r\nConnection: close\r\n\r\n",
		status, http.StatusText(status), xhtml, len(page), seconds(comeAgain))
	b.Write(page)
	return b.Bytes()
}
