package proxy

import (
	"bytes"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"pod2role/credentials"
	"pod2role/mappings"
)

// list answers with the name of the pod's role. It does not wait for the session.
func (p *Proxy) list(x *exchange) {
	if p.allowed(x) {
		x.outcome = served
		x.answer(http.StatusOK, plainText, []byte(x.decision.Listing))
	}
}

// role answers with the credentials of the pod's role.
func (p *Proxy) role(x *exchange) {
	if s := p.session(x); s != nil {
		x.outcome = served
		x.answer(http.StatusOK, plainText, s.Document(document))
	}
}

// extendedRole answers as role does, and adds the account. EC2 serves this path on some instances only; SDKs that know
// it ask it first (https://github.com/aws/aws-sdk-java-v2/pull/6176).
func (p *Proxy) extendedRole(x *exchange) {
	if s := p.session(x); s != nil {
		x.outcome = served
		x.answer(http.StatusOK, plainText, extend(s.Document(document), accountOf(s.Key.RoleARN)))
	}
}

// info answers with an instance profile that fits the pod's role. The node's own is nobody's business, but SDKs read
// this path.
func (p *Proxy) info(x *exchange) {
	if p.allowed(x) {
		x.outcome = served
		x.answer(http.StatusOK, plainText, profile(x.decision.Session.RoleARN, x.start))
	}
}

// allowed reports whether the pod may have a role. If not, the request has been answered.
func (p *Proxy) allowed(x *exchange) bool {
	if !p.decide(x) {
		return false
	}
	if x.decision.Verdict != mappings.Allowed {
		x.refuse(refuseVerdict(x.decision.Verdict))
		return false
	}
	return true
}

// session returns a session for the role that was asked for, if it is the pod's own. If it returns nil, the request has
// been answered.
func (p *Proxy) session(x *exchange) *credentials.Session {
	if !p.allowed(x) {
		return nil
	}
	if !x.decision.Accepts(x.target.role) {
		// As EC2 answers for any name but its role's: SDKs that remember a role's name then ask for it again.
		x.fail(http.StatusNotFound, outcomeOtherRole)
		return nil
	}
	s, err := p.cfg.Credentials(&x.hold, credentials.Key(x.decision.Session))
	switch {
	case err != nil:
		x.err = err
		x.refuse(refuseError(err))
		return nil
	case s == nil:
		x.failAgain(outcomeFailed)
		return nil
	case !time.Now().Before(s.Expiration):
		x.failAgain(outcomeExpired)
		return nil
	}
	if p.moved(x) {
		return nil
	}
	return s
}

// document renders a session as EC2 does, to the space before the colon: shell scripts depend on it.
func document(s *credentials.Session) []byte {
	return render([][2]string{
		{"Code", "Success"},
		{"LastUpdated", s.Obtained.UTC().Format(timeFormat)},
		{"Type", "AWS-HMAC"},
		{"AccessKeyId", s.AccessKeyID},
		{"SecretAccessKey", s.SecretAccessKey.Reveal()},
		{"Token", s.Token.Reveal()},
		{"Expiration", s.Expiration.UTC().Format(timeFormat)},
	})
}

// profile renders what EC2 says of an instance profile.
func profile(roleARN string, now time.Time) []byte {
	// An ID that stays the same for the role, in the shape of
	// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html#identifiers-unique-ids.
	sum := sha256.Sum256([]byte(roleARN))
	id := "AIPA" + base32.StdEncoding.EncodeToString(sum[:])[:17]
	return render([][2]string{
		{"Code", "Success"},
		{"LastUpdated", now.UTC().Format(timeFormat)},
		{"InstanceProfileArn", strings.Replace(roleARN, ":role/", ":instance-profile/", 1)},
		{"InstanceProfileId", id},
	})
}

// render writes members in their order, in EC2's layout, without a newline at the end.
func render(members [][2]string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	for i, member := range members {
		if i == 0 {
			b.WriteString("{\n")
		} else {
			b.WriteString(",\n")
		}
		b.WriteString(`  "` + member[0] + `" : `)
		_ = e.Encode(member[1]) // a string can be encoded, and a buffer written
		b.Truncate(b.Len() - 1) // the encoder's newline
	}
	b.WriteString("\n}")
	return b.Bytes()
}

// extend returns a copy of a document with the account added.
func extend(document []byte, account string) []byte {
	body := bytes.TrimSuffix(document, []byte("\n}"))
	return append(append([]byte(nil), body...), ",\n  \"AccountId\" : \""+account+"\"\n}"...)
}

// accountOf returns the account of an ARN, which mappings has checked: arn:partition:iam::account:role/name.
func accountOf(arn string) string {
	fields := strings.SplitN(arn, ":", 6)
	if len(fields) < 6 {
		return ""
	}
	return fields[4]
}
