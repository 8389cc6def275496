package kubeapi

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// SelfSigned makes a certificate for loopback, valid for a day, and the PEM of
// the authority that signed it (itself), for Config.Certificate. Whoever connects
// by kubeconfig needs it: clients use a kubeconfig's token only with https.
func SelfSigned() (tls.Certificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, fmt.Errorf("making a key: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: "kube-apiserver (sandbox)"},
		NotBefore:    now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA:        true, BasicConstraintsValid: true,
		DNSNames:    []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, nil, fmt.Errorf("making a certificate: %w", err)
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, ca, nil
}

// Kubeconfig returns a kubeconfig file (JSON, which is YAML) for a server at url.
// ca is the PEM of its authority, nil for http.
func Kubeconfig(url, token string, ca []byte) ([]byte, error) {
	cluster := map[string]any{"server": url}
	if ca != nil {
		cluster["certificate-authority-data"] = ca
	}
	return json.MarshalIndent(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "sandbox",
		"clusters": []any{map[string]any{"name": "sandbox", "cluster": cluster}},
		"users":    []any{map[string]any{"name": "sandbox", "user": map[string]any{"token": token}}},
		"contexts": []any{map[string]any{"name": "sandbox", "context": map[string]any{"cluster": "sandbox", "user": "sandbox"}}},
	}, "", "  ")
}
