package sts

import (
	"cmp"
	"net/url"
	"time"
)

// assumeRole is AssumeRole.
//
// https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRole.html
func (s *Server) assumeRole(form url.Values, call Call, who caller) (any, *Error) {
	if err := validate(form, call, readTags(form), who.session, s.cfg.maxSession(call.RoleARN)); err != nil {
		return nil, err
	}
	if action, ok := s.cfg.allows(call); !ok {
		return nil, denied(call, action)
	}
	session := s.give(call)
	return &assumeRoleResponse{Result: assumeRoleResult{
		User:        assumedRoleUser{ID: roleID(call.RoleARN) + ":" + call.SessionName, ARN: session.ARN()},
		Credentials: credentialsOf(session),
	}}, nil
}

// assumeRoleWithWebIdentity is AssumeRoleWithWebIdentity. It is not role chaining: sessions may be longer than 1 h.
//
// https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRoleWithWebIdentity.html
func (s *Server) assumeRoleWithWebIdentity(form url.Values, call Call) (any, *Error) {
	if err := validate(form, call, nil, false, s.cfg.maxSession(call.RoleARN)); err != nil {
		return nil, err
	}
	identity := readIdentity(form.Get("WebIdentityToken"))
	if err := s.cfg.verify(identity); err != nil {
		return nil, err
	}
	if action, ok := s.cfg.allows(call); !ok {
		return nil, denied(call, action)
	}
	session := s.give(call)
	return &webIdentityResponse{Result: webIdentityResult{
		Subject:     identity.Subject,
		Audience:    s.cfg.Audience,
		User:        assumedRoleUser{ID: roleID(call.RoleARN) + ":" + call.SessionName, ARN: session.ARN()},
		Credentials: credentialsOf(session),
		Provider:    identity.Issuer,
	}}, nil
}

// give makes the session that an allowed call asks for.
func (s *Server) give(call Call) Session {
	life := cmp.Or(s.faults.Load().Lifetime, s.cfg.Lifetime, call.Duration)
	return Session{
		RoleARN: call.RoleARN, Name: call.SessionName, ExternalID: call.ExternalID, Tags: call.Tags,
		Serial: s.serial.Add(1), Expires: time.Now().Add(life).Unix(),
	}
}

// denied is what STS says of a call that the trust policy does not allow, and of a role that does not exist.
func denied(call Call, action string) *Error {
	if call.Action == "AssumeRoleWithWebIdentity" {
		return &Error{Code: "AccessDenied", Message: "Not authorized to perform " + action}
	}
	return &Error{
		Code:    "AccessDenied",
		Message: "User: " + call.Caller + " is not authorized to perform: " + action + " on resource: " + call.RoleARN,
	}
}
