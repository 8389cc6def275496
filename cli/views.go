package cli

import (
	"errors"
	"net/http"
	"net/netip"
	"time"

	"pod2role/cluster"
	"pod2role/cni"
	"pod2role/debug"
	"pod2role/mappings"
)

// views are the pages of the debug endpoint. None may hold a secret: sessions and external IDs are masked where they
// come from.
func (d *daemon) views() []debug.View {
	return []debug.View{
		{Path: "pods", About: "this node's pods, the role of each, and why", Show: func(*http.Request) (any, error) { return d.podView(), nil }},
		{Path: "explain", About: "?ip=ADDRESS: what the pod with this address may have, and how that was decided", Show: d.explainView},
		{Path: "sessions", About: "STS sessions: age, expiry, last error", Show: func(*http.Request) (any, error) { return d.sessions.States(), nil }},
		{Path: "held", About: "requests that wait for their pod to become known", Show: func(*http.Request) (any, error) { return d.identity.Held(), nil }},
		{Path: "sources", About: "the watches of the API server and the CNI's records", Show: func(*http.Request) (any, error) { return d.sourceView(), nil }},
		{Path: "rules", About: "the redirect as the kernel has it, and other programs' rules for the metadata address", Show: d.ruleView},
		{Path: "store", About: "the same as kube2iam shows it", Show: func(*http.Request) (any, error) { return d.storeView(), nil }},
	}
}

// podRow is one pod in a view.
type podRow struct {
	Pod              string       `json:"pod"`
	Addrs            []netip.Addr `json:"addrs"`
	Verdict          string       `json:"verdict"`
	Role             string       `json:"role,omitempty"`
	Reason           string       `json:"reason"`
	OtherCredentials string       `json:"otherCredentials,omitempty"`
}

func (d *daemon) podView() []podRow {
	rows := []podRow{}
	for _, pod := range d.cluster.Pods() {
		row := podRow{Pod: pod.Namespace + "/" + pod.Name, Addrs: pod.Addrs, OtherCredentials: pod.OtherCredentials}
		switch {
		case pod.HostNetwork:
			row.Verdict, row.Reason = mappings.NotAPod.String(), "the pod uses the node's network, so its requests cannot be told from the node's"
		default:
			decision := d.decider.Decide(pod, d.cluster.Namespace(pod.Namespace))
			row.Verdict, row.Role, row.Reason = decision.Verdict.String(), decision.Session.RoleARN, decision.Reason
		}
		rows = append(rows, row)
	}
	return rows
}

func (d *daemon) explainView(r *http.Request) (any, error) {
	addr, err := netip.ParseAddr(r.URL.Query().Get("ip"))
	if err != nil {
		return nil, errors.New("give the pod's address: /debug/explain?ip=10.0.0.1")
	}
	decision := d.explain(r.Context(), addr.Unmap())
	view := struct {
		Pod     string          `json:"pod,omitempty"`
		Verdict string          `json:"verdict"`
		Role    string          `json:"role,omitempty"`
		Reason  string          `json:"reason"`
		Trail   []mappings.Step `json:"trail"`
	}{Verdict: decision.Verdict.String(), Role: decision.Session.RoleARN, Reason: decision.Reason, Trail: decision.Trail}
	if decision.Pod != nil {
		view.Pod = decision.Pod.Namespace + "/" + decision.Pod.Name
	}
	return view, nil
}

func (d *daemon) sourceView() any {
	view := struct {
		APIServer []cluster.WatchStatus `json:"apiServer"`
		CNI       *cni.Status           `json:"cni,omitempty"`
		Records   []recordRow           `json:"records,omitempty"`
		DaemonSet []cluster.WatchStatus `json:"daemonSet,omitempty"`
	}{APIServer: d.cluster.Status()}
	if d.membership != nil {
		view.DaemonSet = d.membership.Status()
	}
	if d.records != nil {
		status := d.records.Status()
		view.CNI = &status
		for _, r := range d.records.Records() {
			view.Records = append(view.Records, recordRow{r.Namespace + "/" + r.Name, r.Addrs, r.HostInterface, r.Given})
		}
	}
	return view
}

// recordRow is one of the CNI's records in a view.
type recordRow struct {
	Pod           string       `json:"pod"`
	Addrs         []netip.Addr `json:"addrs"`
	HostInterface string       `json:"hostInterface,omitempty"`
	Given         time.Time    `json:"given"`
}

func (d *daemon) ruleView(r *http.Request) (any, error) {
	if d.redirect == nil {
		return map[string]string{"redirect": d.config.Redirect}, nil
	}
	status, err := d.redirect.Check(r.Context())
	if err != nil {
		return nil, err
	}
	return struct {
		Status any    `json:"status"`
		Rules  string `json:"rules"`
	}{status, d.redirect.String()}, nil
}

// storeView is kube2iam's /debug/store, https://github.com/jtblin/kube2iam#debug.
func (d *daemon) storeView() any {
	view := struct {
		NamespaceByIP    map[netip.Addr]string `json:"namespaceByIP"`
		RolesByIP        map[netip.Addr]string `json:"rolesByIP"`
		RolesByNamespace map[string]string     `json:"rolesByNamespace"`
	}{map[netip.Addr]string{}, map[netip.Addr]string{}, map[string]string{}}
	for _, pod := range d.cluster.Pods() {
		if pod.HostNetwork || pod.Finished {
			continue
		}
		for _, addr := range pod.Addrs {
			view.NamespaceByIP[addr] = pod.Namespace
			view.RolesByIP[addr] = pod.Annotations[d.config.RoleKey]
		}
		if ns := d.cluster.Namespace(pod.Namespace); ns != nil {
			view.RolesByNamespace[ns.Name] = ns.Annotations[d.config.AllowedRolesKey]
		}
	}
	return view
}
