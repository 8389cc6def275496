package credentials

// The error codes that STS gives, from
// https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRole.html#API_AssumeRole_Errors,
// https://docs.aws.amazon.com/STS/latest/APIReference/CommonErrors.html and the throttling codes of the AWS SDK.
//
// A code that is not listed is taken for one that may pass: a session is never given up, nor a role called forbidden,
// for a reason that the program does not know.
var kinds = map[string]Kind{ // :: AWS error code -> kind
	"AccessDenied":          Refused,
	"AccessDeniedException": Refused,

	"InvalidAction":                    Invalid,
	"InvalidParameterCombination":      Invalid,
	"InvalidParameterValue":            Invalid,
	"MalformedPolicyDocument":          Invalid,
	"MalformedPolicyDocumentException": Invalid,
	"MissingParameter":                 Invalid,
	"NotAuthorized":                    Refused,
	"PackedPolicyTooLarge":             Invalid,
	"PackedPolicyTooLargeException":    Invalid,
	"RegionDisabledException":          Invalid,
	"ValidationError":                  Invalid,
	"ValidationException":              Invalid,

	"BandwidthLimitExceeded":    Throttled,
	"LimitExceededException":    Throttled,
	"PriorRequestNotComplete":   Throttled,
	"RequestLimitExceeded":      Throttled,
	"RequestThrottled":          Throttled,
	"RequestThrottledException": Throttled,
	"SlowDown":                  Throttled,
	"ThrottledException":        Throttled,
	"Throttling":                Throttled,
	"ThrottlingException":       Throttled,
	"TooManyRequestsException":  Throttled,

	"AuthFailure":                 OwnIdentity,
	"ExpiredToken":                OwnIdentity,
	"ExpiredTokenException":       OwnIdentity,
	"IncompleteSignature":         OwnIdentity,
	"InvalidAccessKeyId":          OwnIdentity,
	"InvalidClientTokenId":        OwnIdentity,
	"InvalidToken":                OwnIdentity,
	"MissingAuthenticationToken":  OwnIdentity,
	"MalformedQueryString":        Invalid,
	"OptInRequired":               OwnIdentity,
	"RequestExpired":              OwnIdentity,
	"RequestTimeTooSkewed":        OwnIdentity,
	"SignatureDoesNotMatch":       OwnIdentity,
	"UnrecognizedClientException": OwnIdentity,

	"IDPCommunicationError": Unavailable,
	"InternalError":         Unavailable,
	"InternalFailure":       Unavailable,
	"RequestTimeout":        Unavailable,
	"ServiceUnavailable":    Unavailable,
}

// refreshable reports whether the code means that the daemon's own credentials have grown old, so that fetching them
// anew may help.
func refreshable(code string) bool {
	switch code {
	case "ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "InvalidToken", "UnrecognizedClientException":
		return true
	}
	return false
}

// label is the code as it stands in metrics, where only codes that are known may appear.
func label(code string) string {
	switch _, known := kinds[code]; {
	case known:
		return code
	case code == "":
		return "none"
	}
	return "other"
}
