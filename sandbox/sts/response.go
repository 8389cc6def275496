package sts

import (
	"crypto/rand"
	"encoding/xml"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

type credentials struct {
	AccessKeyID     string `xml:"AccessKeyId"`
	SecretAccessKey string
	SessionToken    string
	Expiration      string
}

type assumedRoleUser struct {
	ID  string `xml:"AssumedRoleId"`
	ARN string `xml:"Arn"`
}

type metadata struct {
	RequestID string `xml:"RequestId"`
}

type assumeRoleResponse struct {
	XMLName  xml.Name         `xml:"https://sts.amazonaws.com/doc/2011-06-15/ AssumeRoleResponse"`
	Result   assumeRoleResult `xml:"AssumeRoleResult"`
	Metadata metadata         `xml:"ResponseMetadata"`
}

type assumeRoleResult struct {
	User        assumedRoleUser `xml:"AssumedRoleUser"`
	Credentials credentials
}

type webIdentityResponse struct {
	XMLName  xml.Name          `xml:"https://sts.amazonaws.com/doc/2011-06-15/ AssumeRoleWithWebIdentityResponse"`
	Result   webIdentityResult `xml:"AssumeRoleWithWebIdentityResult"`
	Metadata metadata          `xml:"ResponseMetadata"`
}

type webIdentityResult struct {
	Subject     string `xml:"SubjectFromWebIdentityToken"`
	Audience    string
	User        assumedRoleUser `xml:"AssumedRoleUser"`
	Credentials credentials
	Provider    string
}

type callerIdentityResponse struct {
	XMLName  xml.Name             `xml:"https://sts.amazonaws.com/doc/2011-06-15/ GetCallerIdentityResponse"`
	Result   callerIdentityResult `xml:"GetCallerIdentityResult"`
	Metadata metadata             `xml:"ResponseMetadata"`
}

type callerIdentityResult struct {
	ARN     string `xml:"Arn"`
	UserID  string `xml:"UserId"`
	Account string
}

type errorResponse struct {
	XMLName   xml.Name  `xml:"https://sts.amazonaws.com/doc/2011-06-15/ ErrorResponse"`
	Error     errorBody `xml:"Error"`
	RequestID string    `xml:"RequestId"`
}

type errorBody struct{ Type, Code, Message string }

func credentialsOf(s Session) credentials {
	id, secret, token := s.Credentials()
	return credentials{
		AccessKeyID: id, SecretAccessKey: secret, SessionToken: token,
		Expiration: time.Unix(s.Expires, 0).UTC().Format("2006-01-02T15:04:05Z"),
	}
}

func callerIdentity(who caller) *callerIdentityResponse {
	account := ""
	if parts := strings.SplitN(who.arn, ":", 6); len(parts) == 6 {
		account = parts[4]
	}
	return &callerIdentityResponse{Result: callerIdentityResult{ARN: who.arn, UserID: who.userID, Account: account}}
}

// write answers with the result, or with the error if there is one.
func write(w http.ResponseWriter, result any, err *Error) {
	id := requestID()
	status := http.StatusOK
	switch r := result.(type) {
	case *assumeRoleResponse:
		r.Metadata.RequestID = id
	case *webIdentityResponse:
		r.Metadata.RequestID = id
	case *callerIdentityResponse:
		r.Metadata.RequestID = id
	}
	if err != nil {
		status = err.status()
		result = &errorResponse{Error: errorBody{err.fault(), err.Code, err.Message}, RequestID: id}
	}
	body, failed := xml.MarshalIndent(result, "", "  ")
	if failed != nil { // the responses above always marshal
		status, body = http.StatusInternalServerError, nil
	}
	body = append(body, '\n')
	w.Header().Set("X-Amzn-Requestid", id)
	w.Header().Set("Content-Type", "text/xml")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that has gone is no concern of the server's
}

// requestID is a random UUID (RFC 9562 §5.4).
func requestID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand.Read's contract
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
