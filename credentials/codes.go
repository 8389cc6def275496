package credentials

// kindOf returns what to make of an error code of STS, from
// https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRole.html#API_AssumeRole_Errors,
// https://docs.aws.amazon.com/STS/latest/APIReference/CommonErrors.html and the throttling codes of the AWS SDK.
//
// A code that is not known is taken for one that may pass: a session is never given up, nor a role called forbidden, for
// a reason that the program does not know.
func kindOf(code string) (kind Kind, known bool) {
	switch code {
	case "AccessDenied", "AccessDeniedException", "NotAuthorized":
		return Refused, true
	case "InvalidAction", "InvalidParameterCombination", "InvalidParameterValue", "MalformedPolicyDocument",
		"MalformedPolicyDocumentException", "MalformedQueryString", "MissingParameter", "PackedPolicyTooLarge",
		"PackedPolicyTooLargeException", "RegionDisabledException", "ValidationError", "ValidationException":
		return Invalid, true
	case "BandwidthLimitExceeded", "LimitExceededException", "PriorRequestNotComplete", "RequestLimitExceeded",
		"RequestThrottled", "RequestThrottledException", "SlowDown", "ThrottledException", "Throttling",
		"ThrottlingException", "TooManyRequestsException":
		return Throttled, true
	case "AuthFailure", "IncompleteSignature", "InvalidAccessKeyId", "MissingAuthenticationToken", "OptInRequired",
		"RequestExpired", "RequestTimeTooSkewed", "SignatureDoesNotMatch":
		return OwnIdentity, true
	case "IDPCommunicationError", "InternalError", "InternalFailure", "RequestTimeout", "ServiceUnavailable":
		return Unavailable, true
	}
	if refreshable(code) {
		return OwnIdentity, true
	}
	return Unavailable, false
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
	switch _, known := kindOf(code); {
	case known:
		return code
	case code == "":
		return "none"
	}
	return "other"
}
