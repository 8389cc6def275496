package mappings

import (
	"errors"
	"fmt"
	"sync"
	"text/template"
)

// Rules are the operator's settings of what pods may have.
type Rules struct {
	// Keys are the annotation keys; see [DefaultKeys].
	Keys Keys

	// BaseARN is what role names are put after: "arn:aws:iam::123456789012:role/". Empty: not known.
	BaseARN string
	// AwaitBaseARN says that an empty BaseARN is about to be discovered ([Decider.SetBaseARN]): until then a short
	// name is Pending. Without it, a short name is Malformed.
	AwaitBaseARN bool

	// DefaultRole is the role, a name or an ARN, of pods for which neither they nor their namespace name one; empty:
	// none. As it is the operator's own word, a namespace's annotations do not restrict it when it is used as the
	// default. A pod that names the same role itself is restricted like any other.
	DefaultRole string

	// NamespaceRestrictions demands that the namespace allows the role, with at least one of the two annotations,
	// and with both where both are there.
	NamespaceRestrictions bool
	// Format is that of the allowed-roles annotation; empty: Glob.
	Format Format

	// SessionNameTemplate is a text/template over .Namespace, .ServiceAccount, .Pod, .Node and .Cluster; empty:
	// [DefaultSessionNameTemplate]. The outcome is made a legal session name.
	SessionNameTemplate string
	// Node and Cluster are this node's and the cluster's names.
	Node, Cluster string
	// SessionTags tags each session with cluster, namespace, service account and pod, for which the role's trust
	// policy must allow sts:TagSession. Pods then no longer share sessions.
	SessionTags bool
}

// Decider applies [Rules] to pods. It is safe for concurrent use.
type Decider struct {
	rules    Rules
	template *template.Template

	mu         sync.RWMutex
	base       string                         // the normalized base ARN; empty: not known
	decisions  map[string]remembered          // :: pod UID -> its last decision
	namespaces map[string]restrictedNamespace // :: namespace name -> its patterns, compiled
}

// maxRemembered bounds what a Decider remembers, should it not be told of pods that are gone. A node has a few
// hundred pods.
const maxRemembered = 4096

type remembered struct {
	pod      *Pod
	ns       *Namespace
	decision *Decision
}

type restrictedNamespace struct {
	ns           *Namespace
	restrictions []*restriction
}

// NewDecider checks rules and returns their Decider. All problems are reported at once.
func NewDecider(rules Rules) (*Decider, error) {
	var errs []error
	seen := map[string]bool{}
	for _, key := range rules.Keys.All() {
		switch {
		case key == "":
			errs = append(errs, errors.New("an annotation key is empty"))
		case seen[key]:
			errs = append(errs, fmt.Errorf("the annotation key %q has two meanings", key))
		}
		seen[key] = true
	}
	switch rules.Format {
	case "":
		rules.Format = Glob
	case Glob, Regexp:
	default:
		errs = append(errs, fmt.Errorf("the namespace restriction format %q is neither %q nor %q", rules.Format, Glob, Regexp))
	}
	d := &Decider{rules: rules, decisions: map[string]remembered{}, namespaces: map[string]restrictedNamespace{}}
	var err error
	if rules.BaseARN != "" {
		if d.base, err = NormalizeBaseARN(rules.BaseARN); err != nil {
			errs = append(errs, err)
		}
	}
	if err == nil && rules.DefaultRole != "" {
		if err := d.checkDefaultRole(d.base); err != nil {
			errs = append(errs, err)
		}
	}
	if d.template, err = parseSessionName(rules.SessionNameTemplate); err != nil {
		errs = append(errs, fmt.Errorf("reading the session name template %q: %w", rules.SessionNameTemplate, err))
	}
	if rules.SessionTags {
		if _, err := sessionTags(sessionFields{Cluster: rules.Cluster}); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return d, nil
}

// checkDefaultRole checks the operator's default role against a base ARN, which may yet be unknown.
func (d *Decider) checkDefaultRole(base string) error {
	if base == "" && d.rules.AwaitBaseARN && !isARN(d.rules.DefaultRole) {
		base = "arn:aws:iam::000000000000:role/" // any: only the name is being checked
	}
	if _, err := ParseRole(d.rules.DefaultRole, base); err != nil {
		return fmt.Errorf("the default %w", err)
	}
	return nil
}

// SetBaseARN makes known a base ARN that was discovered after the start. Decisions made without it are forgotten;
// whoever holds requests for it must be woken afterwards.
func (d *Decider) SetBaseARN(base string) error {
	base, err := NormalizeBaseARN(base)
	if err != nil {
		return err
	}
	if d.rules.DefaultRole != "" {
		if err := d.checkDefaultRole(base); err != nil {
			return err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.base = base
	clear(d.decisions)
	return nil
}

// Forget drops what is remembered of a pod that is gone.
func (d *Decider) Forget(podUID string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.decisions, podUID)
}

// Decide says what pod, of namespace ns, may have. A nil ns means that the namespace has not been seen yet, which makes
// the decision Pending. As long as both pointers are the same, so is the Decision's, and nothing is allocated.
func (d *Decider) Decide(pod *Pod, ns *Namespace) *Decision {
	if pod == nil {
		return &Decision{Verdict: Pending, Reason: "the pod is not known yet"}
	}
	d.mu.RLock()
	last, base := d.decisions[pod.UID], d.base
	d.mu.RUnlock()
	if last.pod == pod && last.ns == ns {
		return last.decision
	}

	decision := d.decide(pod, ns, base)

	d.mu.Lock()
	defer d.mu.Unlock()
	if now := d.decisions[pod.UID]; now.pod == pod && now.ns == ns {
		return now.decision // somebody else was faster
	}
	if d.base == base && pod.UID != "" { // else it was made for a base ARN that has passed away
		if len(d.decisions) >= maxRemembered {
			clear(d.decisions)
		}
		d.decisions[pod.UID] = remembered{pod, ns, decision}
	}
	return decision
}

// restrictions returns ns's patterns, compiled once for as long as ns does not change.
func (d *Decider) restrictions(ns *Namespace) []*restriction {
	d.mu.RLock()
	last := d.namespaces[ns.Name]
	d.mu.RUnlock()
	if last.ns == ns {
		return last.restrictions
	}
	rs := restrictions(ns, d.rules.Keys, d.rules.Format)
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.namespaces) >= maxRemembered {
		clear(d.namespaces)
	}
	d.namespaces[ns.Name] = restrictedNamespace{ns, rs}
	return rs
}
