package mappings

// Keys are the annotation keys that the rules read.
type Keys struct {
	// On the pod.
	Role        string // the role it asks for: name, path/name, /path/name or ARN
	ExternalID  string // the external ID that the role's trust policy demands
	SessionName string // a session name of its own

	// On the namespace.
	AllowedRoles string // kube2iam's: a JSON array of globs or regexps
	Permitted    string // Kiam's: one regexp over the role's ARN
	DefaultRole  string // the role of pods that name none
}

// DefaultKeys returns the keys that kube2iam and Kiam made known, and our own for the namespace's default role.
func DefaultKeys() Keys {
	return Keys{
		Role:         "iam.amazonaws.com/role",
		ExternalID:   "iam.amazonaws.com/external-id",
		SessionName:  "iam.amazonaws.com/session-name",
		AllowedRoles: "iam.amazonaws.com/allowed-roles",
		Permitted:    "iam.amazonaws.com/permitted",
		DefaultRole:  "iam.amazonaws.com/default-role",
	}
}

// All returns every key: what whoever keeps pods and namespaces must not strip.
func (k Keys) All() []string {
	return []string{k.Role, k.ExternalID, k.SessionName, k.AllowedRoles, k.Permitted, k.DefaultRole}
}
