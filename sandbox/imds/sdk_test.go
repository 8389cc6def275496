package imds_test

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/ec2rolecreds"
	sdk "github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/google/go-cmp/cmp"

	"pod2role/sandbox/imds"
)

// isolate keeps the SDK from every source of credentials but the one under test, and from the real service.
func isolate(t *testing.T) {
	t.Helper()
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
	for _, name := range []string{
		"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION",
		"AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE",
		"AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
	} {
		t.Setenv(name, "")
	}
}

func client(url string) *sdk.Client {
	return sdk.New(sdk.Options{Endpoint: url, ClientEnableState: sdk.ClientEnabled})
}

func TestGoSDKReadsMetadata(t *testing.T) {
	isolate(t)
	for name, tokens := range map[string]imds.Tokens{
		"optional": imds.TokensOptional, "required": imds.TokensRequired, "disabled": imds.TokensDisabled,
	} {
		t.Run(name, func(t *testing.T) {
			s := imds.New(imds.Config{Tokens: tokens, UserData: "#!/bin/sh"})
			c := client(serve(t, s))

			region, err := c.GetRegion(t.Context(), nil)
			if err != nil || region.Region != "eu-west-1" {
				t.Errorf("GetRegion: %+v, %v", region, err)
			}
			info, err := c.GetIAMInfo(t.Context(), nil)
			if err != nil || info.InstanceProfileArn != "arn:aws:iam::111122223333:instance-profile/sandbox-node-role" {
				t.Errorf("GetIAMInfo: %+v, %v", info, err)
			}
			doc, err := c.GetInstanceIdentityDocument(t.Context(), nil)
			if err != nil || doc.InstanceID != "i-0a1b2c3d4e5f60718" || doc.PrivateIP != "10.0.1.17" {
				t.Errorf("GetInstanceIdentityDocument: %+v, %v", doc, err)
			}
			data, err := c.GetUserData(t.Context(), nil)
			if err != nil {
				t.Fatalf("GetUserData: %v", err)
			}
			if body, err := io.ReadAll(data.Content); err != nil || !strings.Contains(string(body), imds.UserDataMarker) {
				t.Errorf("user data %q, %v", body, err)
			}
			out, err := c.GetMetadata(t.Context(), &sdk.GetMetadataInput{Path: "placement/availability-zone"})
			if err != nil {
				t.Fatalf("GetMetadata: %v", err)
			}
			if body, err := io.ReadAll(out.Content); err != nil || string(body) != "eu-west-1a" {
				t.Errorf("zone %q, %v", body, err)
			}
		})
	}
}

func TestGoSDKGetsTheNodesCredentialsInThreeRequests(t *testing.T) {
	isolate(t)
	s := imds.New(imds.Config{Tokens: imds.TokensRequired})
	provider := ec2rolecreds.New(func(o *ec2rolecreds.Options) { o.Client = client(serve(t, s)) })
	creds, err := provider.Retrieve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if creds.AccessKeyID != imds.NodeAccessKeyID || creds.SecretAccessKey != imds.NodeSecretAccessKey || creds.SessionToken != imds.NodeSessionToken {
		t.Errorf("credentials %q %q %q, want the node's", creds.AccessKeyID, creds.SecretAccessKey, creds.SessionToken)
	}
	if left := time.Until(creds.Expires); !creds.CanExpire || left < 59*time.Minute {
		t.Errorf("expire in %s", left)
	}
	var got []string
	for _, hit := range s.Hits() {
		got = append(got, hit.Method+" "+hit.Target)
	}
	want := []string{
		"PUT /latest/api/token",
		"GET /latest/meta-data/iam/security-credentials/",
		"GET /latest/meta-data/iam/security-credentials/sandbox-node-role",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestGoSDKDefaultChainEndsAtTheServer(t *testing.T) {
	isolate(t)
	s := imds.New(imds.Config{})
	url := serve(t, s)
	cfg, err := config.LoadDefaultConfig(
		t.Context(),
		config.WithEC2IMDSEndpoint(url),
		config.WithEC2IMDSClientEnableState(sdk.ClientEnabled),
		config.WithEC2IMDSRegion(func(o *config.UseEC2IMDSRegion) { o.Client = client(url) }),
		config.WithRetryer(func() aws.Retryer { return aws.NopRetryer{} }),
	)
	if err != nil {
		t.Fatal(err)
	}
	creds, err := cfg.Credentials.Retrieve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if creds.AccessKeyID != imds.NodeAccessKeyID || cfg.Region != "eu-west-1" {
		t.Errorf("access key %q, region %q, want the node's", creds.AccessKeyID, cfg.Region)
	}
}

func TestGoSDKFetchesATokenAnewWhenItsOwnIsRevoked(t *testing.T) {
	isolate(t)
	s := imds.New(imds.Config{})
	c := client(serve(t, s))
	for range 2 {
		if _, err := c.GetRegion(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	s.RevokeTokens()
	if _, err := c.GetMetadata(t.Context(), &sdk.GetMetadataInput{Path: "instance-id"}); err != nil {
		t.Errorf("after the revocation: %v, want a new token and an answer", err)
	}
	refused := 0
	for _, hit := range s.Hits() {
		if hit.Status == 401 {
			refused++
		}
	}
	if refused == 0 {
		t.Error("no request was refused with 401 after the revocation")
	}
}

// TestBotocoreGetsTheNodesCredentials runs the real botocore where there is one.
func TestBotocoreGetsTheNodesCredentials(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	if err := exec.CommandContext(t.Context(), python, "-c", "import botocore").Run(); err != nil {
		t.Skip("python3 has no botocore")
	}
	s := imds.New(imds.Config{Tokens: imds.TokensRequired})
	const script = `import botocore.session
c = botocore.session.Session().get_credentials().get_frozen_credentials()
print(c.access_key, c.secret_key, c.token)`
	cmd := exec.CommandContext(t.Context(), python, "-c", script)
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "AWS_") {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	cmd.Env = append(cmd.Env, "AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null",
		"AWS_EC2_METADATA_SERVICE_ENDPOINT="+serve(t, s))
	out, err := cmd.CombinedOutput()
	want := imds.NodeAccessKeyID + " " + imds.NodeSecretAccessKey + " " + imds.NodeSessionToken
	if err != nil || strings.TrimSpace(string(out)) != want {
		t.Errorf("botocore: %v\n%s\nwant %s", err, out, want)
	}
	if got := len(s.Hits()); got != 3 {
		t.Errorf("botocore sent %d requests, want 3", got)
	}
}
