package imds

import "bytes"

// Every secret that the server can give away contains one of these strings, and nothing else does. They look like the
// real thing to a client and work nowhere.
const (
	NodeAccessKeyID     = "ASIANODEROLEDONTLEAK"
	NodeSecretAccessKey = "node/role+secret/access/key+never/leak00"
	NodeSessionToken    = "IQoJb3JpZ2luX2VjNODEROLESESSIONTOKENNEVERLEAK//////////wEaCWV1LXdlc3QtMSJHMEUCIQD=="

	// The instance identity role's credentials (identity-credentials/ec2/security-credentials/ec2-instance).
	IdentityAccessKeyID     = "ASIAINSTIDENTITYLEAK"
	IdentitySecretAccessKey = "instance/identity+secret/key+never/leak0"
	IdentitySessionToken    = "IQoJb3JpZ2luX2VjINSTANCEIDENTITYTOKENNEVERLEAK//////////wEaCWV1LXdlc3QtMSJHMEUCIQD=="

	UserDataMarker  = "USERDATANEVERLEAK"
	PKCS7Marker     = "MIAGPKCS7NEVERLEAK"
	RSA2048Marker   = "MIAGRSA2048NEVERLEAK"
	SignatureMarker = "SIGNATURENEVERLEAK"
	SSHKeyMarker    = "AAAAB3NzaC1yc2EPUBLICKEYNEVERLEAK"
	ManagedMarker   = "AAAAB3NzaC1yc2EMANAGEDKEYNEVERLEAK"
	// TokenMarker begins every session token that the server mints.
	TokenMarker = "AQAEANODETOKENNEVERLEAK"
)

// Markers returns the marker of every secret, but for the names of the node's role and instance profile, which
// [Server.Leaks] looks for as well.
func Markers() []string {
	return []string{
		NodeAccessKeyID, NodeSecretAccessKey, NodeSessionToken,
		IdentityAccessKeyID, IdentitySecretAccessKey, IdentitySessionToken,
		UserDataMarker, PKCS7Marker, RSA2048Marker, SignatureMarker, SSHKeyMarker, ManagedMarker, TokenMarker,
	}
}

// Leaks returns the markers found in what a pod was given (a body, a header, a log): those of [Markers], and the name
// of the node's role. It returns nil if there is none.
func (s *Server) Leaks(given []byte) []string {
	var found []string
	for _, marker := range append(Markers(), s.cfg.Role) {
		if bytes.Contains(given, []byte(marker)) {
			found = append(found, marker)
		}
	}
	return found
}
