package proxy

import "strings"

// deniedSegment reports whether a path segment, in whatever case, names something that no pod is given from the real
// service. It knows names and stems rather than paths, so that it holds under any version, at any depth, and for what
// AWS adds tomorrow (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-categories.html). Nothing
// opens what it denies, but for user data, which has an option of its own.
func deniedSegment(segment string) bool {
	s := strings.ToLower(segment)
	switch s {
	case "iam", // the node's role; the pod's own is served before this is asked
		"user-data",        // bootstrap secrets
		"pkcs7", "rsa2048", // with signature: bearer proofs of being this node
		"signer-cert", "signer-ocsp": // EC2 Instance Connect
		return true
	}
	return strings.Contains(s, "credential") || // identity-credentials, security-credentials-of-tomorrow
		strings.Contains(s, "token") ||
		strings.Contains(s, "key") || // public-keys, managed-ssh-keys
		strings.Contains(s, "signature") ||
		strings.Contains(s, "secret") ||
		strings.Contains(s, "password")
}
