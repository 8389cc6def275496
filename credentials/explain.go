package credentials

import (
	"errors"
	"net/url"
	"strconv"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"
)

// explain turns an error of the AWS SDK into one of ours, whose text says no more than an operator needs.
func explain(err error) *Error {
	e := &Error{Kind: Unavailable, Err: err}
	if refused, ok := errors.AsType[smithy.APIError](err); ok {
		e.Code = refused.ErrorCode()
		e.Kind, _ = kindOf(e.Code)
		e.Err = nil
		if message := refused.ErrorMessage(); message != "" {
			e.Err = errors.New(message)
		}
	} else if unreachable, ok := errors.AsType[*url.Error](err); ok {
		e.Err = unreachable
	}
	if response, ok := errors.AsType[*awshttp.ResponseError](err); ok {
		e.RequestID = response.ServiceRequestID()
		if response.Response != nil {
			e.RetryAfter = retryAfter(response.Response.Header.Get("Retry-After"))
		}
	}
	return e
}

// ownIdentity is explain for an error that the daemon's own credentials are to blame for, whatever its code.
func ownIdentity(err error) *Error {
	e := explain(err)
	e.Kind = OwnIdentity
	return e
}

// retryAfter reads the header of that name where it gives seconds, RFC 9110 section 10.2.3.
func retryAfter(value string) time.Duration {
	seconds, err := strconv.Atoi(value)
	if err != nil || seconds < 0 || seconds > 3600 {
		return 0
	}
	return time.Duration(seconds) * time.Second
}
