package credentials

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/aws/smithy-go/logging"
	smithy "github.com/aws/smithy-go/middleware"
)

// account is what it takes to call STS as the daemon.
type account struct {
	client *sts.Client
	base   aws.CredentialsProvider // the daemon's own
	used   aws.CredentialsProvider // those that assume the pods' roles: the same, or the first role's
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
