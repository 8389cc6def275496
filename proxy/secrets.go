package proxy

import "strings"

// deniedSegment reports whether a path segment, in whatever case, names something that no pod is given from the real
// service. The list is of names and stems rather than of paths, so that it holds under any version, at any depth, and
// for what AWS adds tomorrow (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-categories.html).
// Nothing opens what it denies, but for user data, which has an option of its own.
func deniedSegment(segment string) bool {
	s := strings.ToLower(segment)
	switch s {
	case "iam", // the node's role; the pod's own is served before this is asked
		"identity-credentials", // the instance identity role: reserved for AWS, but working credentials
		"user-data",            // bootstrap secrets
		"pkcs7", "rsa2048",     // with signature: bearer proofs of being this node
		"public-keys", "managed-ssh-keys", "active-keys", "signer-cert", "signer-ocsp": // EC2 Instance Connect
		return true
	}
	return strings.Contains(s, "credential") ||
		strings.Contains(s, "token") ||
		strings.Contains(s, "key") ||
		strings.Contains(s, "signature") ||
		strings.Contains(s, "secret") ||
		strings.Contains(s, "password")
}
