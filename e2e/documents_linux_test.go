package e2e_test

import (
	"net/http"
	"testing"

	"pod2role/e2e/testnet"
)

func TestPodsReadTheInstancesOwnDocuments(t *testing.T) {
	inEachTopology(t, func(t *testing.T, topology testnet.Topology) {
		n := newNode(t, topology, options{})
		p := n.pod(t, "shop", "plain", "")
		n.ready(t)
		for _, path := range []string{
			"/", "/latest/", "/latest/meta-data/", "/latest/meta-data/instance-id", "/latest/meta-data/local-ipv4",
			"/latest/meta-data/placement/region", "/latest/meta-data/placement/availability-zone", "/latest/meta-data/placement/availability-zone/",
			"/latest/meta-data/mac", "/latest/meta-data/network/interfaces/macs/", "/latest/dynamic/instance-identity/document",
			"/2021-03-23/meta-data/instance-type", "/latest/meta-data/no-such-thing",
		} {
			want, err := exchange(t.Context(), n.Metadata, metadata, http.MethodGet, path)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second may come from a cache
				if got := p.get(t, path); got.code != want.code || got.body != want.body {
					t.Errorf("%s: got %d %q, want what EC2 says: %d %q", path, got.code, got.body, want.code, want.body)
				}
			}
		}
	})
}

func TestNoSpellingOfAPathLeadsToASecret(t *testing.T) {
	inEachTopology(t, func(t *testing.T, topology testnet.Topology) {
		n := newNode(t, topology, options{})
		p := n.pod(t, "shop", "web", "shop-web")
		n.ready(t)
		role := n.imds.Config().Role
		for _, target := range []string{
			listPath + role, listPath + role + "/", "//latest/meta-data/iam/security-credentials/" + role,
			"/latest//meta-data//iam//security-credentials//" + role, "/latest/meta-data/./iam/security-credentials/" + role,
			"/latest/meta-data/x/../iam/security-credentials/" + role, "/latest/meta-data/%69am/security-credentials/" + role,
			"/latest/meta-data%2Fiam/security-credentials/" + role, "/latest/meta-data/%2e%2e/meta-data/iam/security-credentials/" + role,
			"/latest/%6deta-data/iam/security-credentials/" + role, "/latest/%256deta-data/iam/security-credentials/" + role,
			"/LATEST/meta-data/IAM/security-credentials/" + role, `/latest\meta-data\iam\security-credentials\` + role,
			"/1.0/meta-data/iam/security-credentials/" + role, "/2016-09-02/meta-data/iam/security-credentials/" + role,
			"/9999-99-99/meta-data/iam/security-credentials/" + role, "/meta-data/iam/security-credentials/" + role,
			"/latest/meta-data/iam;x/security-credentials/" + role, "/latest/meta-data/iam/security-credentials;/" + role,
			"/latest/meta-data/iam%00/security-credentials/" + role, "/latest/meta-data/iam/security-credentials/%3f/" + role,
			"http://169.254.169.254/latest/meta-data/iam/security-credentials/" + role,
			"/latest/meta-data/iam/security-credentials-extended/" + role,
			"/latest/meta-data/identity-credentials/ec2/info", "/latest/meta-data/identity-credentials/ec2/security-credentials/ec2-instance",
			"/latest/meta-data/identity-credentials/ec2/security-credentials/ec2-instance/", "/latest/meta-data/IDENTITY-CREDENTIALS/",
			"/latest/user-data", "/latest/user-data/", "/latest/user-data?x", "/latest/user-data%20", "/latest/user-data/.", "/1.0/user-data", "/latest//user-data",
			"/latest/dynamic/instance-identity/pkcs7", "/latest/dynamic/instance-identity/rsa2048", "/latest/dynamic/instance-identity/signature",
			"/latest/meta-data/public-keys/0/openssh-key", "/latest/managed-ssh-keys/active-keys/",
		} {
			for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost} {
				if a := p.ask(t, metadata, method, target); a.code < 400 || a.code > 499 {
					t.Errorf("%s %s: got %d %q, want a refusal", method, target, a.code, a.body)
				}
			}
		}
		// These are the pod's own role by another name.
		for _, target := range []string{
			"/latest/meta-data/iam/security-credentials", "//latest//meta-data//iam//security-credentials//",
			"/1.0/meta-data/iam/security-credentials/", "/2009-04-04/meta-data/iam/security-credentials/",
		} {
			if a := p.get(t, target); a.code != http.StatusOK || a.body != "shop-web" {
				t.Errorf("%s: got %d %q, want the pod's own role", target, a.code, a.body)
			}
		}
	})
}
