package sts_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/credentials/ec2rolecreds"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	imdssdk "github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	sdk "github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/aws-sdk-go-v2/service/sts/types"
	"github.com/aws/smithy-go"

	"pod2role/sandbox/imds"
	"pod2role/sandbox/sts"
)

// client is a real STS client with static credentials, which asks nobody but url and does not retry.
func client(url string, creds aws.CredentialsProvider) *sdk.Client {
	return sdk.New(sdk.Options{
		Region: "eu-west-1", BaseEndpoint: aws.String(url), Credentials: creds, Retryer: aws.NopRetryer{},
	})
}

func user() aws.CredentialsProvider {
	return credentials.NewStaticCredentialsProvider(userKey, "test", "")
}

func TestGoSDKAssumesARole(t *testing.T) {
	s := sts.New(sts.Config{Region: "eu-west-1"})
	url := serve(t, s)
	out, err := client(url, user()).AssumeRole(t.Context(), &sdk.AssumeRoleInput{
		RoleArn: aws.String(writer), RoleSessionName: aws.String("node-1"), ExternalId: aws.String("ext-1"),
		DurationSeconds: aws.Int32(1800), Tags: []types.Tag{{Key: aws.String("pod"), Value: aws.String("a b&<c>")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := out.Credentials
	session, err := sts.DecodeCredentials(*c.AccessKeyId, *c.SecretAccessKey, *c.SessionToken)
	if err != nil {
		t.Fatal(err)
	}
	want := sts.Session{
		RoleARN: writer, Name: "node-1", ExternalID: "ext-1", Tags: `[{"Key":"pod","Value":"a b\u0026\u003cc\u003e"}]`,
		Serial: 1, Expires: c.Expiration.Unix(),
	}
	if session != want {
		t.Errorf("session %+v, want %+v", session, want)
	}
	if left := time.Until(*c.Expiration); left > 30*time.Minute || left < 29*time.Minute {
		t.Errorf("expires in %s, want 30 min", left)
	}
	if got, want := *out.AssumedRoleUser.Arn, "arn:aws:sts::444455556666:assumed-role/writer/node-1"; got != want {
		t.Errorf("assumed role user %q, want %q", got, want)
	}

	// The session's own credentials are those of the session.
	own := client(url, credentials.NewStaticCredentialsProvider(*c.AccessKeyId, *c.SecretAccessKey, *c.SessionToken))
	who, err := own.GetCallerIdentity(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if *who.Arn != *out.AssumedRoleUser.Arn || *who.Account != "444455556666" || *who.UserId != *out.AssumedRoleUser.AssumedRoleId {
		t.Errorf("caller %q of %q, ID %q, want the session", *who.Arn, *who.Account, *who.UserId)
	}
}

func TestNodesCredentialsFromTheMetadataServiceAssumeARole(t *testing.T) {
	node := imds.New(imds.Config{})
	s := sts.New(sts.Config{
		Callers: map[string]string{imds.NodeAccessKeyID: node.CallerARN()},
		Roles:   map[string]sts.Role{reader: {Trusts: []string{node.RoleARN()}}},
	})
	metadata := httptest.NewServer(node)
	defer metadata.Close()
	creds := ec2rolecreds.New(func(o *ec2rolecreds.Options) {
		o.Client = imdssdk.New(imdssdk.Options{Endpoint: metadata.URL, ClientEnableState: imdssdk.ClientEnabled})
	})
	c := client(serve(t, s), creds)
	assume := func(life int32) error {
		_, err := c.AssumeRole(t.Context(), &sdk.AssumeRoleInput{
			RoleArn: aws.String(reader), RoleSessionName: aws.String("node-1"), DurationSeconds: aws.Int32(life),
		})
		return err
	}
	if err := assume(3600); err != nil {
		t.Errorf("one hour: %v", err)
	}
	var api smithy.APIError
	if err := assume(3601); !errors.As(err, &api) || api.ErrorCode() != "ValidationError" {
		t.Errorf("more than one hour: %v, want a ValidationError: it is role chaining", err)
	}
	if got := s.Calls()[0]; got.Caller != node.CallerARN() || got.CallerRoleARN != node.RoleARN() {
		t.Errorf("caller %q of %q, want the node's role", got.Caller, got.CallerRoleARN)
	}
}

func TestGoSDKReadsTheErrors(t *testing.T) {
	s := sts.New(sts.Config{})
	c := client(serve(t, s), user())
	assume := func(code string) error {
		s.SetFaults(hook(code))
		_, err := c.AssumeRole(t.Context(), &sdk.AssumeRoleInput{RoleArn: aws.String(reader), RoleSessionName: aws.String("node-1")})
		return err
	}
	for _, code := range []string{"AccessDenied", "Throttling", "ValidationError", "ExpiredTokenException", "RegionDisabledException", "ServiceUnavailable"} {
		err := assume(code)
		var api smithy.APIError
		if !errors.As(err, &api) || api.ErrorCode() != code || api.ErrorMessage() != "scripted" {
			t.Errorf("%s: the SDK read %v", code, err)
		}
		var response interface{ ServiceRequestID() string }
		if !errors.As(err, &response) || response.ServiceRequestID() == "" {
			t.Errorf("%s: the SDK read no request ID", code)
		}
	}
	var disabled *types.RegionDisabledException
	if err := assume("RegionDisabledException"); !errors.As(err, &disabled) {
		t.Errorf("RegionDisabledException: the SDK read %T", err)
	}
}

func TestGoSDKMeetsConnectionsThatCloseAndHang(t *testing.T) {
	s := sts.New(sts.Config{})
	c := client(serve(t, s), user())
	s.SetFaults(sts.Faults{Outage: sts.Closed})
	if _, err := c.GetCallerIdentity(t.Context(), nil); err == nil {
		t.Error("answered, want a closed connection")
	}
	s.SetFaults(sts.Faults{Outage: sts.Hanging})
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() {
		_, err := c.GetCallerIdentity(ctx, nil)
		failed <- err
	}()
	if _, err := s.Wait(t.Context(), 2, nil); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("a hanging call that was given up: %v, want the context's error", err)
	}
}

func TestGoSDKAssumesARoleWithAWebIdentity(t *testing.T) {
	s := sts.New(sts.Config{})
	token := jwt(t, map[string]any{"iss": "https://oidc.example", "sub": "system:serviceaccount:ns:sa", "aud": "sts.amazonaws.com", "exp": time.Now().Add(time.Hour).Unix()})
	provider := stscreds.NewWebIdentityRoleProvider(client(serve(t, s), nil), reader, identityToken(token), func(o *stscreds.WebIdentityRoleOptions) {
		o.RoleSessionName = "pod-1"
		o.Duration = 2 * time.Hour
	})
	creds, err := provider.Retrieve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	session, err := sts.DecodeCredentials(creds.AccessKeyID, creds.SecretAccessKey, creds.SessionToken)
	if err != nil || session.RoleARN != reader || session.Name != "pod-1" {
		t.Errorf("session %+v, %v", session, err)
	}
	if got := s.Calls()[0]; got.Caller != "system:serviceaccount:ns:sa" || got.AccessKeyID != "" {
		t.Errorf("call by %q with key %q, want the subject without one", got.Caller, got.AccessKeyID)
	}
}

type identityToken string

func (i identityToken) GetIdentityToken() ([]byte, error) { return []byte(i), nil }
