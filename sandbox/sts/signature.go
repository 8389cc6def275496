package sts

import (
	"net/http"
	"regexp"
	"strings"
)

// authorization is the header of Signature Version 4.
//
// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
var authorization = regexp.MustCompile(
	`^AWS4-HMAC-SHA256 Credential=([\w]{16,128})/(\d{8})/([a-z0-9-]+)/([a-z0-9-]+)/aws4_request, ?` +
		`SignedHeaders=([a-z0-9;-]+), ?Signature=[0-9a-f]{64}$`)

// caller is who signed a request.
type caller struct {
	accessKeyID string
	arn         string
	roleARN     string // the role behind arn, empty if it is a user
	userID      string
	region      string // of the signature
	session     bool   // temporary credentials: a role that these assume is chained
}

// authenticate tells from a request who signed it. It checks all that STS does but the signature itself.
func (s *Server) authenticate(r *http.Request) (caller, *Error) {
	header := r.Header.Get("Authorization")
	if header == "" {
		return caller{}, &Error{Code: "MissingAuthenticationToken", Message: "Request is missing Authentication Token"}
	}
	fields := authorization.FindStringSubmatch(header)
	if fields == nil {
		return caller{}, &Error{Code: "IncompleteSignature", Message: "Authorization header is not of the form of Signature Version 4"}
	}
	accessKeyID, region, service, signed := fields[1], fields[3], fields[4], fields[5]
	who := caller{accessKeyID: accessKeyID, region: region, session: strings.HasPrefix(accessKeyID, keyPrefix)}
	switch {
	case service != "sts":
		return who, &Error{Code: "SignatureDoesNotMatch", Message: "Credential should be scoped to correct service: 'sts'."}
	case s.cfg.Region != "" && region != s.cfg.Region:
		return who, &Error{Code: "SignatureDoesNotMatch", Message: "Credential should be scoped to a valid region."}
	case !strings.Contains(";"+signed+";", ";host;"):
		return who, &Error{Code: "SignatureDoesNotMatch", Message: "'Host' must be a 'SignedHeader' in the AWS Authorization."}
	}
	err := s.identify(&who, r.Header.Get("X-Amz-Security-Token"))
	return who, err
}

// identify fills in who holds the access key.
func (s *Server) identify(who *caller, token string) *Error {
	unknown := &Error{Code: "InvalidClientTokenId", Message: "The security token included in the request is invalid."}
	if who.session && token == "" {
		return unknown
	}
	if session, err := Decode(token); err == nil {
		if id, _, _ := session.Credentials(); id != who.accessKeyID {
			return unknown
		}
		who.arn, who.roleARN = session.ARN(), session.RoleARN
		who.userID = roleID(session.RoleARN) + ":" + session.Name
		if session.expired() {
			return &Error{Code: "ExpiredToken", Message: "The security token included in the request is expired"}
		}
		return nil
	}
	arn, known := s.cfg.Callers[who.accessKeyID]
	switch {
	case known:
	case s.cfg.Callers != nil:
		return unknown
	case who.session:
		arn = "arn:aws:sts::" + s.cfg.Account + ":assumed-role/sandbox-node-role/i-0a1b2c3d4e5f60718"
	default:
		arn = "arn:aws:iam::" + s.cfg.Account + ":user/sandbox"
	}
	who.arn, who.userID = arn, "AIDASANDBOXUSERABCDE2"
	if partition, account, role, name, ok := assumedRole(arn); ok {
		who.roleARN = "arn:" + partition + ":iam::" + account + ":role/" + role
		who.userID = roleID(who.roleARN) + ":" + name
	}
	return nil
}

// assumedRole takes the ARN of an assumed-role session apart.
func assumedRole(arn string) (partition, account, role, name string, ok bool) {
	parts := strings.SplitN(arn, ":", 6)
	if len(parts) != 6 || parts[2] != "sts" {
		return "", "", "", "", false
	}
	resource := strings.Split(parts[5], "/")
	if len(resource) != 3 || resource[0] != "assumed-role" {
		return "", "", "", "", false
	}
	return parts[1], parts[4], resource[1], resource[2], true
}
