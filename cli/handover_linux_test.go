package cli

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"pod2role/sandbox/kubeapi"
)

func TestAHandOverFailsNoRequest(t *testing.T) {
	onNode(t, func(ctx context.Context, n *nodeWorld) {
		serving := n.daemonProcess(t)
		serving.expect("msg=ready")
		asking := n.clients(ctx, t)
		for range 5 {
			newcomer := n.daemonProcess(t)
			newcomer.expect("msg=ready")
			serving.expect("another process serves")
			asking.more(t) // while the old process is still there
			if got, err := probe(ctx, "http://daemon/readyz", newcomer.probe); err != nil {
				t.Errorf("the newcomer's probe: %q, %v", got, err)
			}
			serving.end()
			asking.more(t)
			serving = newcomer
		}
		asking.stop()
		if requests, err := asking.soFar(); err != nil {
			t.Errorf("of %d requests some failed:\n%v", requests, err)
		}
	})
}

func TestANewcomerThatIsKilledFailsNoRequest(t *testing.T) {
	onNode(t, func(ctx context.Context, n *nodeWorld) {
		serving := n.daemonProcess(t)
		serving.expect("msg=ready")
		asking := n.clients(ctx, t)
		for _, step := range []string{"hello", "take", "serving"} {
			newcomer := launch(t, asNewcomer, n.doors(), step)
			newcomer.expect("reached")
			newcomer.kill()
			switch step {
			case "take":
				serving.expect("the hand-over failed; this process goes on")
			case "serving":
				serving.expect("the process that had taken over has left; this one serves again")
			}
			asking.more(t)
		}
		preparing := n.daemonProcess(t)
		preparing.expect("another process serves this node until this one is prepared")
		preparing.kill()
		asking.more(t)

		last := n.daemonProcess(t)
		last.expect("msg=ready")
		serving.end()
		asking.more(t)
		asking.stop()
		if requests, err := asking.soFar(); err != nil {
			t.Errorf("of %d requests some failed:\n%v", requests, err)
		}
	})
}

func TestWhenTheNewcomerEndsTheOldProcessServesAgain(t *testing.T) {
	onNode(t, func(ctx context.Context, n *nodeWorld) {
		old := n.daemonProcess(t)
		old.expect("msg=ready")
		asking := n.clients(ctx, t)
		newcomer := n.daemonProcess(t)
		newcomer.expect("msg=ready")
		old.expect("another process serves")
		newcomer.end() // as when a rollout is taken back
		old.expect("this one serves again")
		asking.more(t)

		again := n.daemonProcess(t)
		again.expect("msg=ready")
		old.end()
		asking.more(t)
		asking.stop()
		if requests, err := asking.soFar(); err != nil {
			t.Errorf("of %d requests some failed:\n%v", requests, err)
		}
	})
}

func TestANewcomerThatIsNotPreparedTakesNothing(t *testing.T) {
	onNode(t, func(ctx context.Context, n *nodeWorld) {
		old := n.daemonProcess(t)
		old.expect("msg=ready")
		asking := n.clients(ctx, t)
		n.api.SetOutage(kubeapi.Refuse)
		newcomer := n.daemonProcess(t)
		newcomer.expect("another process serves this node until this one is prepared")
		asking.more(t)
		if old.hasSaid("asks for the sockets") {
			t.Error("it asked for the sockets while it knew no pod")
		}
		n.api.SetOutage(kubeapi.Up)
		newcomer.expect("msg=ready")

		// When the process that serves is gone, it waits no longer: a request that is held is better than one refused.
		n.api.SetOutage(kubeapi.Refuse)
		old.end()
		next := n.daemonProcess(t)
		next.expect("another process serves this node until this one is prepared")
		asking.stop()
		if requests, err := asking.soFar(); err != nil {
			t.Errorf("of %d requests some failed:\n%v", requests, err)
		}
		newcomer.kill()
		pod, err := n.webPod("late")
		if err != nil {
			t.Fatal(err)
		}
		answered := make(chan answer, 1)
		go func() {
			got := pod.ask(ctx, http.MethodGet, listPath)
			for errors.Is(got.err, syscall.ECONNREFUSED) { // the moment until it is noticed
				got = pod.ask(ctx, http.MethodGet, listPath)
			}
			answered <- got
		}()
		n.api.SetOutage(kubeapi.Up)
		if got := <-answered; got.body != "shop-web" && got.code != http.StatusServiceUnavailable {
			t.Errorf("got %s", got.outcome())
		}
		next.expect("msg=ready")
	})
}

func TestANewcomerWaitsForAProcessThatHangs(t *testing.T) {
	onNode(t, func(_ context.Context, n *nodeWorld) {
		old := n.daemonProcess(t)
		old.expect("msg=ready")
		old.signal(syscall.SIGSTOP)
		newcomer := n.daemonProcess(t)
		newcomer.expect("did not answer")
		newcomer.expect("is in use on this node")
		old.kill()
		newcomer.expect("msg=ready")
	})
}

func TestANewcomerWaitsForAnotherProgramToLeaveThePort(t *testing.T) {
	onNode(t, func(ctx context.Context, n *nodeWorld) {
		_, port, err := net.SplitHostPort(n.app)
		if err != nil {
			t.Fatal(err)
		}
		other, err := net.Listen("tcp", ":"+port)
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		newcomer := n.daemonProcess(t)
		newcomer.expect("is in use on this node")
		if answer, err := probe(ctx, "http://daemon/readyz", newcomer.probe); err == nil || !strings.Contains(err.Error(), "is in use") {
			t.Errorf("the probe says %q, %v; want that it is not ready", answer, err)
		}
		if answer, err := probe(ctx, "http://daemon/healthz", newcomer.probe); err != nil {
			t.Errorf("the probe says %q, %v; want that it is alive", answer, err)
		}
		if err := other.Close(); err != nil {
			t.Fatal(err)
		}
		newcomer.expect("msg=ready")
		pod, err := n.webPod("web")
		if err != nil {
			t.Fatal(err)
		}
		if got := pod.ask(ctx, http.MethodGet, listPath); got.body != "shop-web" {
			t.Errorf("got %s", got.outcome())
		}
	})
}
