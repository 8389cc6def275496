package credentials

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/aws-sdk-go-v2/service/sts/types"
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
	request, err := input(key, duration)
	if err != nil {
		return nil, &Error{Kind: Invalid, Err: err}
	}
	own, err := a.credentials(ctx)
	if err != nil {
		return nil, ownIdentity(err)
	}
	session, failure := a.assume(ctx, request, own)
	if failure != nil && refreshable(failure.Code) {
		fresh, err := a.refresh(ctx, own)
		if err != nil {
			return nil, ownIdentity(err)
		}
		if fresh.AccessKeyID != own.AccessKeyID {
			session, failure = a.assume(ctx, request, fresh)
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
