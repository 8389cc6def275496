package cli

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials/ec2rolecreds"
	ec2 "github.com/aws/aws-sdk-go-v2/feature/ec2/imds"

	"pod2role/sandbox/imds"
	"pod2role/sandbox/sts"
)

// sdk is the real Go SDK in a pod, with the time-outs and attempts that it has by default.
func (p demoPod) sdk() *ec2.Client {
	return ec2.New(ec2.Options{
		Endpoint:          "http://" + p.w.app,
		ClientEnableState: ec2.ClientEnabled, // the environment disables it, lest anything here asks a real service
		HTTPClient: awshttp.NewBuildableClient().WithDialerOptions(func(d *net.Dialer) {
			d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.addr, 0))
		}),
	})
}

// retrieve fetches credentials with the SDK and returns whose they are.
func retrieve(ctx context.Context, t *testing.T, client *ec2.Client) (aws.Credentials, sts.Session) {
	t.Helper()
	got, err := ec2rolecreds.New(func(o *ec2rolecreds.Options) { o.Client = client }).Retrieve(ctx)
	if err != nil {
		t.Error(err)
	}
	session, _ := sts.Decode(got.AccessKeyID) // the zero Session says that it is nobody's
	return got, session
}

// requests returns how many requests of pods the daemon has answered.
func (w *world) requests(t *testing.T) int {
	t.Helper()
	families, err := w.daemon.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, family := range families {
		if family.GetName() == "pod2role_proxy_requests_total" {
			for _, m := range family.GetMetric() {
				n += int(m.GetCounter().GetValue())
			}
		}
	}
	return n
}

func TestAWarmFetchOfTheGoSDKIsThreeRequests(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		p := w.pod(t, "web", "shop-web")
		p.credentials(ctx)
		before := w.requests(t)
		got, session := retrieve(ctx, t, p.sdk())
		if session.RoleARN != demoBaseARN+"shop-web" || !got.CanExpire || time.Until(got.Expires) < 25*time.Minute {
			t.Errorf("got the credentials of %q, good for %s", session.RoleARN, time.Until(got.Expires))
		}
		if n := w.requests(t) - before; n != 3 {
			t.Errorf("it took %d requests, want 3: token, role, credentials", n)
		}
	})
}

// TestTheGoSDKsSecondAttemptFindsWhatItsFirstBegan: it waits half a second for an answer, and has three attempts.
func TestTheGoSDKsSecondAttemptFindsWhatItsFirstBegan(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		w.sts.SetFaults(sts.Faults{Latency: 800 * time.Millisecond})
		p := w.pod(t, "web", "shop-web")
		before := time.Now()
		if _, session := retrieve(ctx, t, p.sdk()); session.RoleARN != demoBaseARN+"shop-web" {
			t.Errorf("got the credentials of %q", session.RoleARN)
		}
		if took := time.Since(before); took > 3*time.Second {
			t.Errorf("it took %s", took)
		}
		if n := w.sts.Count(demoBaseARN + "shop-web"); n != 1 {
			t.Errorf("STS was called %d times, want once", n)
		}
	})
}

// TestASlowCallToSTSIsMadeOnceForAllWhoWait, and whoever comes later does not wait.
func TestASlowCallToSTSIsMadeOnceForAllWhoWait(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		w.sts.SetFaults(sts.Faults{Latency: 3 * time.Second})
		p := w.pod(t, "web", "shop-web")
		var wait sync.WaitGroup
		for range 50 {
			wait.Go(func() {
				if got := p.ask(ctx, http.MethodGet, listPath+"shop-web"); got.code != http.StatusOK {
					t.Errorf("one who waited got %s", got.outcome())
				}
			})
		}
		wait.Wait()
		if got := p.ask(ctx, http.MethodGet, listPath+"shop-web"); got.code != http.StatusOK || got.took > time.Second {
			t.Errorf("one who came later got %s after %s", got.outcome(), got.took)
		}
		if n := w.sts.Count(demoBaseARN + "shop-web"); n != 1 {
			t.Errorf("STS was called %d times, want once", n)
		}
	}, "--hold=25s") // a machine that is busy with other tests must not fail this one
}

// TestTheGoSDKGetsItsTokenWhateverTheRealServiceDoes: the pods' tokens are the daemon's own.
func TestTheGoSDKGetsItsTokenWhateverTheRealServiceDoes(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		p := w.pod(t, "web", "shop-web")
		p.credentials(ctx)
		w.imds.SetFaults(imds.Faults{Outage: imds.Unavailable})
		w.imds.Reset()
		before := time.Now()
		if _, session := retrieve(ctx, t, p.sdk()); session.RoleARN != demoBaseARN+"shop-web" {
			t.Errorf("got the credentials of %q", session.RoleARN)
		}
		if took := time.Since(before); took > 2*time.Second {
			t.Errorf("it took %s: the SDK waits 2 s if it gets no token", took)
		}
		if hits := w.imds.Hits(); len(hits) > 0 {
			t.Errorf("the real service was asked for %s", hits[0].Target)
		}
	}, "--imds-tokens=required")
}

// TestTheGoSDKFindsTheInstance by all the ways that it has.
func TestTheGoSDKFindsTheInstance(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		client := w.pod(t, "plain", "").sdk()
		region, err := client.GetRegion(ctx, nil)
		if err != nil || region.Region != demoRegion {
			t.Errorf("region %+v, %v", region, err)
		}
		identity, err := client.GetInstanceIdentityDocument(ctx, nil)
		if err != nil || identity.AccountID != demoAccount || identity.InstanceID != w.imds.Config().InstanceID {
			t.Errorf("identity %+v, %v", identity, err)
		}
		if _, err := client.GetUserData(ctx, nil); err == nil {
			t.Error("it got the user data")
		}
		withRole := w.pod(t, "web", "shop-web").sdk()
		info, err := withRole.GetIAMInfo(ctx, nil)
		if err != nil || info.InstanceProfileArn != "arn:aws:iam::"+demoAccount+":instance-profile/shop-web" {
			t.Errorf("instance profile %+v, %v", info, err)
		}
	})
}
