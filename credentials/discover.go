package credentials

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

var (
	// The shape of a region's name in every partition: eu-west-1, us-gov-east-1, us-isob-east-1.
	regionName = regexp.MustCompile(`^[a-z]{2,}(?:-[a-z]+)+-[0-9]{1,2}$`)

	// An ARN from which the account of an identity can be told,
	// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html#identifiers-arns.
	identityARN = regexp.MustCompile(`^arn:(aws[a-z0-9-]*):(?:iam|sts)::([0-9]{12}):(?:instance-profile/.+|assumed-role/.+|role/.+|user/.+|federated-user/.+|root)$`)
)

// DiscoverRegion asks the metadata service at endpoint (http://host[:port]) for the region of the instance, with IMDSv2.
// It repeats what may yet succeed until ctx ends.
func DiscoverRegion(ctx context.Context, endpoint string) (string, error) {
	return discover(ctx, endpoint, "the region", func(ctx context.Context, client *imds.Client) (string, error) {
		output, err := client.GetRegion(ctx, &imds.GetRegionInput{})
		if err != nil {
			return "", err
		}
		if !regionName.MatchString(output.Region) {
			return "", malformed(fmt.Sprintf("%q does not look like a region", output.Region))
		}
		return output.Region, nil
	})
}

// DiscoverBaseARN asks the metadata service at endpoint (http://host[:port]) for the instance profile, with IMDSv2, and
// returns what stands in front of the names of roles in its account: arn:PARTITION:iam::ACCOUNT:role/. It repeats what
// may yet succeed until ctx ends; an instance without a profile is an error at once.
func DiscoverBaseARN(ctx context.Context, endpoint string) (string, error) {
	return discover(ctx, endpoint, "the instance profile", func(ctx context.Context, client *imds.Client) (string, error) {
		output, err := client.GetIAMInfo(ctx, &imds.GetIAMInfoInput{})
		if err != nil {
			return "", err
		}
		return baseARN(output.InstanceProfileArn)
	})
}

// BaseARN is [DiscoverBaseARN] for a daemon that is not on EC2: it asks STS who the daemon is, once.
func (s *STS) BaseARN(ctx context.Context) (string, error) {
	a, err := s.load(ctx)
	if err != nil {
		return "", ownIdentity(err)
	}
	own, err := a.credentials(ctx)
	if err != nil {
		return "", ownIdentity(err)
	}
	output, err := a.client.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{}, func(o *sts.Options) {
		o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return own, nil })
	})
	if err != nil {
		return "", fmt.Errorf("asking STS who the daemon is: %w", explain(err))
	}
	return baseARN(aws.ToString(output.Arn))
}

// baseARN returns what stands in front of the names of roles in the account of an identity.
func baseARN(identity string) (string, error) {
	parts := identityARN.FindStringSubmatch(identity)
	if parts == nil {
		return "", malformed(fmt.Sprintf("%q is not the ARN of an identity in an account", identity))
	}
	return "arn:" + parts[1] + ":iam::" + parts[2] + ":role/", nil
}

// malformed is an answer that will not become better.
type malformed string

func (m malformed) Error() string { return string(m) }

// discover calls get until it succeeds, or fails for good, or ctx ends.
func discover(ctx context.Context, endpoint, what string, get func(context.Context, *imds.Client) (string, error)) (string, error) {
	if err := checkEndpoint(endpoint); err != nil {
		return "", err
	}
	client := newMetadataClient(endpoint)
	pause := 100 * time.Millisecond
	for {
		value, err := get(ctx, client)
		if err == nil {
			return value, nil
		}
		if final(err) {
			return "", fmt.Errorf("asking the metadata service for %s: %w", what, err)
		}
		timer := time.NewTimer(jitter(pause))
		select {
		case <-timer.C:
			pause = min(2*pause, 5*time.Second)
		case <-ctx.Done():
			timer.Stop()
			return "", fmt.Errorf("asking the metadata service for %s: %w (%w)", what, err, ctx.Err())
		}
	}
}

// final reports whether the metadata service has said something that it will say again.
func final(err error) bool {
	if _, ok := errors.AsType[malformed](err); ok {
		return true
	}
	if _, ok := errors.AsType[*smithy.DeserializationError](err); ok {
		return true
	}
	response, ok := errors.AsType[*smithyhttp.ResponseError](err)
	if !ok {
		return false
	}
	switch code := response.HTTPStatusCode(); code {
	case http.StatusUnauthorized, http.StatusTooManyRequests, http.StatusRequestTimeout:
		return false
	default:
		return code >= 400 && code < 500
	}
}

func checkEndpoint(endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" || u.Host == "" {
		return fmt.Errorf("the metadata service's endpoint %q is not of the form http://host:port", endpoint)
	}
	return nil
}

// newMetadataClient returns a client that uses IMDSv2 only.
func newMetadataClient(endpoint string) *imds.Client {
	return imds.New(imds.Options{
		Endpoint:          endpoint,
		ClientEnableState: imds.ClientEnabled,
		EnableFallback:    aws.FalseTernary,
		HTTPClient:        newMetadataHTTPClient(),
	})
}

// newMetadataHTTPClient returns a client that uses no proxy: HTTP_PROXY is meant for STS, and a proxy would learn the
// node's credentials.
func newMetadataHTTPClient() *awshttp.BuildableClient {
	return awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) { t.Proxy = nil })
}
