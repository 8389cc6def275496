package sts

import "net/http"

// Error is an error as STS answers it.
type Error struct {
	Code    string
	Message string
	Status  int // HTTP; 0: the one that the code has
}

// Error implements error.
func (e *Error) Error() string { return e.Code + ": " + e.Message }

func (e *Error) status() int {
	if e.Status != 0 {
		return e.Status
	}
	// https://docs.aws.amazon.com/STS/latest/APIReference/CommonErrors.html and the errors of each action. Throttling
	// is 400: https://github.com/amzn/selling-partner-api-docs/issues/278.
	switch e.Code {
	case "AccessDenied", "ExpiredToken", "IDPRejectedClaim", "InvalidClientTokenId", "MissingAuthenticationToken",
		"OptInRequired", "RegionDisabledException", "SignatureDoesNotMatch":
		return http.StatusForbidden
	case "InternalFailure":
		return http.StatusInternalServerError
	case "ServiceUnavailable":
		return http.StatusServiceUnavailable
	default:
		return http.StatusBadRequest
	}
}

// fault says who is at fault, in the terms of the protocol.
func (e *Error) fault() string {
	if e.status() >= http.StatusInternalServerError {
		return "Receiver"
	}
	return "Sender"
}

func invalid(message string) *Error { return &Error{Code: "ValidationError", Message: message} }
