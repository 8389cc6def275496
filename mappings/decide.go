package mappings

import (
	"fmt"
	"strings"
)

// draft is a decision in the making.
type draft struct {
	Decision
	base string // the base ARN; empty: not known
}

func (d *draft) step(looked, found string, args ...any) {
	d.Trail = append(d.Trail, Step{Looked: looked, Found: fmt.Sprintf(found, args...)})
}

// settle ends the making. The reason is a sentence for the operator.
func (d *draft) settle(v Verdict, reason string, args ...any) *Decision {
	d.Verdict, d.Reason = v, fmt.Sprintf(reason, args...)
	if v != Allowed {
		d.Session, d.Listing = Session{}, ""
	}
	return &d.Decision
}

// annotation looks one up, says so in the trail, and trims white space around it: a line break at the end is what YAML
// blocks leave behind. White space within makes the value malformed, later.
func (d *draft) annotation(of, key string, annotations map[string]string) (value string, ok bool) {
	looked := of + "'s annotation " + key
	raw, ok := annotations[key]
	value = strings.TrimSpace(raw)
	switch {
	case !ok:
		d.step(looked, "absent")
	case value == "":
		d.step(looked, "empty")
	case value != raw:
		d.step(looked, "%s, after trimming the white space around it", quote(value))
	default:
		d.step(looked, "%s", quote(value))
	}
	return value, ok
}

// decide makes a decision; base is the base ARN, empty while it is not known.
func (d *Decider) decide(pod *Pod, ns *Namespace, base string) *Decision {
	dr := &draft{Decision: Decision{Pod: pod}, base: base}
	who := "pod " + pod.Namespace + "/" + pod.Name
	if pod.HostNetwork {
		dr.step("the pod's network", "the node's own (hostNetwork)")
		return dr.settle(NotAPod, "%s uses the node's network, so its requests cannot be told from the node's own, and it has the node's role", who)
	}
	if ns == nil {
		dr.step("the namespace "+pod.Namespace, "not seen yet")
		return dr.settle(Pending, "the namespace %q of %s has not been seen yet", pod.Namespace, who)
	}

	value, source, none := d.name(dr, who, pod, ns)
	if none != nil {
		return none
	}
	arn, unread := d.read(dr, who, value, source)
	if unread != nil {
		return unread
	}
	why := "the operator's default role is not restricted by namespaces"
	if source == sourceOperator {
		dr.step("the namespace's restrictions", "passed over: the operator's default role is not subject to them")
	} else {
		var refused *Decision
		if why, refused = d.restrict(dr, who, arn, ns); refused != nil {
			return refused
		}
	}
	dr.Listing = arn
	if short, ok := strings.CutPrefix(arn, base); ok {
		dr.Listing = short
	}
	if malformed := d.session(dr, who, arn); malformed != nil {
		return malformed
	}
	return dr.settle(Allowed, "%s may use %s, which %s names: %s", who, arn, source, why)
}

// source is where a role was named.
type source string

const (
	sourcePod       source = "its annotation"
	sourceNamespace source = "its namespace's default"
	sourceOperator  source = "the operator's default"
)

// name finds the role that counts, in the first place that names one. A place that is there but empty says: no role;
// what comes after it is not looked at.
func (d *Decider) name(dr *draft, who string, pod *Pod, ns *Namespace) (value string, from source, none *Decision) {
	keys := d.rules.Keys
	if value, ok := dr.annotation("the pod", keys.Role, pod.Annotations); ok {
		if value == "" {
			return "", "", dr.settle(NoRole, "%s has an empty annotation %s, which asks for no role; name one, or remove the annotation to get the default", who, keys.Role)
		}
		return value, sourcePod, nil
	}
	if value, ok := dr.annotation("the namespace", keys.DefaultRole, ns.Annotations); ok {
		if value == "" {
			return "", "", dr.settle(NoRole, "%s names no role, and the empty annotation %s of its namespace gives it none; annotate the pod with %s", who, keys.DefaultRole, keys.Role)
		}
		return value, sourceNamespace, nil
	}
	if d.rules.DefaultRole == "" {
		dr.step("the operator's default role", "none")
		return "", "", dr.settle(NoRole, "%s names no role, and there is no default; annotate the pod with %s, or its namespace with %s", who, keys.Role, keys.DefaultRole)
	}
	dr.step("the operator's default role", "%s", quote(d.rules.DefaultRole))
	return d.rules.DefaultRole, sourceOperator, nil
}

// read makes an ARN of what was named.
func (d *Decider) read(dr *draft, who, value string, from source) (arn string, unread *Decision) {
	looked := "the role " + quote(value)
	if dr.base == "" && !isARN(value) && d.rules.AwaitBaseARN && checkShortName(strings.TrimPrefix(value, "/")) == nil {
		dr.step(looked, "a short name, and the base ARN is not known yet")
		return "", dr.settle(Pending, "%s has the role %s by %s, and the base ARN that short names lie under is not known yet", who, quote(value), from)
	}
	arn, err := ParseRole(value, dr.base)
	if err != nil {
		dr.step(looked, "malformed")
		return "", dr.settle(Malformed, "%s cannot have the role that %s names: %v", who, from, err)
	}
	dr.step(looked, "%s", arn)
	return arn, nil
}

// restrict asks the namespace whether it allows the role: why it does, or the refusal.
func (d *Decider) restrict(dr *draft, who, arn string, ns *Namespace) (why string, refused *Decision) {
	if !d.rules.NamespaceRestrictions {
		dr.step("the namespace's restrictions", "switched off")
		return "namespaces do not restrict roles here", nil
	}
	keys := d.rules.Keys
	rs := d.restrictions(ns)
	if len(rs) == 0 {
		dr.step("the namespace's annotations "+keys.AllowedRoles+" and "+keys.Permitted, "absent: no role is allowed")
		return "", dr.settle(Forbidden, "the namespace %q allows no role, so %s may not use %s; to allow it, run: %s",
			ns.Name, who, arn, d.remedy(ns.Name, arn))
	}
	for _, r := range rs {
		looked := "the namespace's annotation " + r.key
		element, unsure := r.allows(arn, dr.base)
		switch {
		case r.err != nil:
			dr.step(looked, "%s, which allows nothing: %v", quote(r.value), r.err)
			return "", dr.settle(Forbidden, "the annotation %s of the namespace %q cannot be read, and so allows nothing to %s: %v", r.key, ns.Name, who, r.err)
		case element == 0 && unsure && d.rules.AwaitBaseARN:
			dr.step(looked, "%s, and the base ARN is not known yet", quote(r.value))
			return "", dr.settle(Pending, "the annotation %s of the namespace %q speaks of short names, and the base ARN that they lie under is not known yet", r.key, ns.Name)
		case element == 0:
			dr.step(looked, "%s, which does not allow %s", quote(r.value), arn)
			return "", dr.settle(Forbidden, "the annotation %s of the namespace %q, which is %s, does not allow %s to use %s; extend it to allow the role", r.key, ns.Name, quote(r.value), who, arn)
		}
		dr.step(looked, "%s, whose element %d allows it", quote(r.value), element)
	}
	return "its namespace allows it", nil
}

// remedy is a command that makes the namespace allow the role.
func (d *Decider) remedy(namespace, arn string) string {
	if d.rules.Format == Regexp {
		arn = strings.NewReplacer(`.`, `\\.`, `+`, `\\+`).Replace(arn)
	}
	return fmt.Sprintf(`kubectl annotate namespace %s '%s=["%s"]'`, namespace, d.rules.Keys.AllowedRoles, arn)
}

// session fills in what to ask STS for; a non-nil Decision refuses.
func (d *Decider) session(dr *draft, who, arn string) (malformed *Decision) {
	keys, pod := d.rules.Keys, dr.Pod
	s := Session{RoleARN: arn}

	// The external ID is a shared secret of sorts: neither the trail nor the reason shows it.
	if s.ExternalID = strings.TrimSpace(pod.Annotations[keys.ExternalID]); s.ExternalID != "" {
		looked := "the pod's annotation " + keys.ExternalID
		if err := checkExternalID(s.ExternalID); err != nil {
			dr.step(looked, "malformed")
			return dr.settle(Malformed, "%s has an external ID in its annotation %s that STS would refuse: %v", who, keys.ExternalID, err)
		}
		dr.step(looked, "set")
	}

	fields := sessionFields{Namespace: pod.Namespace, ServiceAccount: pod.ServiceAccount, Pod: pod.Name, Node: d.rules.Node, Cluster: d.rules.Cluster}
	if fields.Node == "" {
		fields.Node = pod.Node
	}
	if value := pod.Annotations[keys.SessionName]; value != "" {
		if s.Name, _ = dr.annotation("the pod", keys.SessionName, pod.Annotations); s.Name != "" {
			// A name that trust policies may test must not be bent into another one.
			if err := checkSessionName(s.Name); err != nil {
				return dr.settle(Malformed, "%s has the session name %s in its annotation %s, which STS would refuse: %v", who, quote(s.Name), keys.SessionName, err)
			}
		}
	}
	var err error
	if s.Name == "" {
		if s.Name, err = sessionName(d.template, fields); err != nil {
			dr.step("the session name template", "%v", err)
			return dr.settle(Malformed, "the session name template does not fit %s: %v", who, err)
		}
		dr.step("the session name", "%s, from the template", s.Name)
	}
	if d.rules.SessionTags {
		if s.Tags, err = sessionTags(fields); err != nil {
			dr.step("the session tags", "%v", err)
			return dr.settle(Malformed, "%s cannot have its session tagged: %v", who, err)
		}
		dr.step("the session tags", "%s", s.Tags)
	}
	dr.Session = s
	return nil
}
