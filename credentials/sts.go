package credentials

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/ec2rolecreds"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/aws-sdk-go-v2/service/sts/types"
	"github.com/aws/smithy-go/logging"
	smithy "github.com/aws/smithy-go/middleware"
	"github.com/sirupsen/logrus"
)

// chained is the most that STS gives a caller who uses a role itself.
const chained = time.Hour

// STSConfig says how to reach STS and as whom. What it does not say, the AWS SDK takes from its own environment
// variables and files: AWS_ENDPOINT_URL_STS, AWS_USE_FIPS_ENDPOINT, AWS_USE_DUALSTACK_ENDPOINT, AWS_CA_BUNDLE,
// HTTPS_PROXY, and the credentials of the daemon itself, which are looked for as every SDK does.
type STSConfig struct {
	// Region whose STS is asked. Empty: AWS_REGION or the SDK's files, else that of the instance.
	Region string

	// AssumeRoleARN, if set, is a role to assume first, with whose credentials the pods' roles are then assumed.
	// Sessions then last an hour at most.
	AssumeRoleARN string

	// SessionName is the RoleSessionName of that first role. Empty: pod2role.
	SessionName string

	// MetadataEndpoint is the URL of the real metadata service, http://host[:port], which is where the daemon's own
	// credentials come from on EC2. It is used whatever AWS_EC2_METADATA_DISABLED says, which is about the address that
	// the SDK would use by itself. Empty: no metadata service is asked.
	MetadataEndpoint string

	Log *logrus.Entry // for what the SDK has to say; nil: discard
}

// STS assumes roles with the AWS SDK. Its methods are safe for concurrent use.
type STS struct {
	cfg     STSConfig
	loading chan struct{} // holds one: what loads
	account *account      // nil: not loaded yet; guarded by loading
}

// account is what it takes to call STS as the daemon.
type account struct {
	client *sts.Client
	base   aws.CredentialsProvider // the daemon's own
	used   aws.CredentialsProvider // those that assume the pods' roles: the same, or the first role's
}

// NewSTS returns an STS that has looked at nothing yet: it loads its configuration when it is first used.
func NewSTS(cfg STSConfig) (*STS, error) {
	if cfg.SessionName == "" {
		cfg.SessionName = "pod2role"
	}
	if cfg.Log == nil {
		discard := logrus.New()
		discard.SetOutput(io.Discard)
		cfg.Log = logrus.NewEntry(discard)
	}
	if cfg.MetadataEndpoint != "" {
		if err := checkEndpoint(cfg.MetadataEndpoint); err != nil {
			return nil, err
		}
	}
	return &STS{cfg: cfg, loading: make(chan struct{}, 1)}, nil
}

// Load reads the SDK's configuration and finds the region. Assume does so by itself; to call it earlier tells earlier
// what is wrong. It may be called again after an error.
func (s *STS) Load(ctx context.Context) error {
	_, err := s.load(ctx)
	return err
}

func (s *STS) load(ctx context.Context) (*account, error) {
	select {
	case s.loading <- struct{}{}:
		defer func() { <-s.loading }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s.account != nil {
		return s.account, nil
	}
	options := []func(*config.LoadOptions) error{
		config.WithHTTPClient(newHTTPClient()),
		config.WithLogger(s.logger()),
		config.WithAPIOptions([]func(*smithy.Stack) error{middleware.AddUserAgentKey("pod2role")}),
		// For the daemon's own credentials only: it is the cache that repeats calls for the pods' roles.
		config.WithRetryer(func() aws.Retryer {
			return retry.NewStandard(func(o *retry.StandardOptions) { o.MaxBackoff = time.Second })
		}),
		config.WithCredentialsCacheOptions(early),
	}
	if s.cfg.Region != "" {
		options = append(options, config.WithRegion(s.cfg.Region))
	}
	if s.cfg.MetadataEndpoint != "" {
		options = append(options, config.WithEC2RoleCredentialOptions(func(o *ec2rolecreds.Options) {
			o.Client = newMetadataClient(s.cfg.MetadataEndpoint)
		}))
	} else {
		options = append(options, config.WithEC2IMDSClientEnableState(imds.ClientDisabled))
	}
	cfg, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("loading the configuration of the AWS SDK: %w", err)
	}
	if cfg.Region == "" {
		if s.cfg.MetadataEndpoint == "" {
			return nil, errors.New("no AWS region is configured, and there is no metadata service to ask: set AWS_REGION")
		}
		if cfg.Region, err = DiscoverRegion(ctx, s.cfg.MetadataEndpoint); err != nil {
			return nil, err
		}
	}
	a := &account{base: cfg.Credentials, used: cfg.Credentials}
	if s.cfg.AssumeRoleARN != "" {
		first := stscreds.NewAssumeRoleProvider(sts.NewFromConfig(cfg), s.cfg.AssumeRoleARN, func(o *stscreds.AssumeRoleOptions) {
			o.RoleSessionName = s.cfg.SessionName
			o.Duration = chained
		})
		a.used = aws.NewCredentialsCache(first, early)
	}
	a.client = sts.NewFromConfig(cfg, func(o *sts.Options) { o.Retryer = aws.NopRetryer{} })
	s.account = a
	return a, nil
}

// early renews the daemon's own credentials before they expire.
func early(o *aws.CredentialsCacheOptions) {
	o.ExpiryWindow = 5 * time.Minute
	o.ExpiryWindowJitterFrac = 0.5
}

// newHTTPClient returns a client that notices within a few seconds that nobody answers, so that there is time for
// another attempt while a pod waits.
func newHTTPClient() *awshttp.BuildableClient {
	return awshttp.NewBuildableClient().WithTimeout(8 * time.Second).
		WithDialerOptions(func(d *net.Dialer) { d.Timeout = 2 * time.Second }).
		WithTransportOptions(func(t *http.Transport) {
			t.TLSHandshakeTimeout = 3 * time.Second
			t.ResponseHeaderTimeout = 4 * time.Second
			t.MaxIdleConnsPerHost = 20
		})
}

func (s *STS) logger() logging.Logger {
	return logging.LoggerFunc(func(level logging.Classification, format string, v ...any) {
		entry := s.cfg.Log.WithField("text", fmt.Sprintf(format, v...))
		if level == logging.Warn {
			entry.Warn("the AWS SDK warns")
			return
		}
		entry.Debug("the AWS SDK tells")
	})
}

// Assume calls AssumeRole once, https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRole.html, and once more
// with fresh credentials of the daemon's own if STS says that the old ones have expired. Its errors are [*Error].
func (s *STS) Assume(ctx context.Context, key Key, duration time.Duration) (*Session, error) {
	a, err := s.load(ctx)
	if err != nil {
		return nil, ownIdentity(err)
	}
	if s.cfg.AssumeRoleARN != "" {
		duration = min(duration, chained)
	}
	input, err := input(key, duration)
	if err != nil {
		return nil, &Error{Kind: Invalid, Err: err}
	}
	own, err := a.credentials(ctx)
	if err != nil {
		return nil, ownIdentity(err)
	}
	session, failure := a.assume(ctx, input, own)
	if failure != nil && refreshable(failure.Code) {
		fresh, err := a.refresh(ctx, own)
		if err != nil {
			return nil, ownIdentity(err)
		}
		if fresh.AccessKeyID != own.AccessKeyID {
			session, failure = a.assume(ctx, input, fresh)
		}
	}
	if failure != nil {
		return nil, failure
	}
	session.Key = key
	return session, nil
}

// assume makes the call.
func (a *account) assume(ctx context.Context, input *sts.AssumeRoleInput, own aws.Credentials) (*Session, *Error) {
	output, err := a.client.AssumeRole(ctx, input, func(o *sts.Options) {
		// Handed over rather than fetched by the client, so that trouble with them is not taken for the role's.
		o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return own, nil })
	})
	if err != nil {
		return nil, explain(err)
	}
	c := output.Credentials
	if c == nil || aws.ToString(c.AccessKeyId) == "" || aws.ToString(c.SecretAccessKey) == "" || aws.ToString(c.SessionToken) == "" || c.Expiration == nil {
		return nil, &Error{Kind: Unavailable, Err: errors.New("STS answered without complete credentials")}
	}
	id, _ := middleware.GetRequestIDMetadata(output.ResultMetadata)
	return &Session{
		AccessKeyID:     *c.AccessKeyId,
		SecretAccessKey: Secret(*c.SecretAccessKey),
		Token:           Secret(*c.SessionToken),
		Obtained:        time.Now(),
		Expiration:      *c.Expiration,
		RequestID:       id,
	}, nil
}

// input returns what to ask STS for.
func input(key Key, duration time.Duration) (*sts.AssumeRoleInput, error) {
	in := &sts.AssumeRoleInput{
		RoleArn:         aws.String(key.RoleARN),
		RoleSessionName: aws.String(key.Name),
		DurationSeconds: aws.Int32(int32(duration / time.Second)),
	}
	if key.ExternalID != "" {
		in.ExternalId = aws.String(key.ExternalID)
	}
	if key.Tags != "" {
		var tags []types.Tag
		if err := json.Unmarshal([]byte(key.Tags), &tags); err != nil {
			return nil, fmt.Errorf("reading session tags %q: %w", key.Tags, err)
		}
		in.Tags = tags
	}
	return in, nil
}

// credentials returns those that assume the pods' roles.
func (a *account) credentials(ctx context.Context) (aws.Credentials, error) {
	own, err := a.used.Retrieve(ctx)
	if err == nil || a.used == a.base || !refreshable(explain(err).Code) {
		return own, err
	}
	invalidate(a.base) // the first role was asked for with credentials that have expired
	return a.used.Retrieve(ctx)
}

// refresh fetches them anew, unless somebody has done so since old was read.
func (a *account) refresh(ctx context.Context, old aws.Credentials) (aws.Credentials, error) {
	if own, err := a.credentials(ctx); err == nil && own.AccessKeyID != old.AccessKeyID {
		return own, nil
	}
	invalidate(a.used)
	return a.credentials(ctx)
}

func invalidate(provider aws.CredentialsProvider) {
	if cache, ok := provider.(*aws.CredentialsCache); ok {
		cache.Invalidate()
	}
}
