package imds

import (
	"fmt"
	"strings"
	"time"
)

// versions are those that the real service lists, and `latest`. Each serves the whole tree here, which is more than
// EC2 does (it has iam/ from 2012-01-12 on): a guard that holds here holds there.
//
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/configuring-instance-metadata-service.html
func versions() []string {
	return []string{
		"1.0", "2007-01-19", "2007-03-01", "2007-08-29", "2007-10-10", "2007-12-15", "2008-02-01", "2008-09-01",
		"2009-04-04", "2011-01-01", "2011-05-01", "2012-01-12", "2014-02-25", "2014-11-05", "2015-10-20", "2016-04-19",
		"2016-06-30", "2016-09-02", "2018-03-28", "2018-08-17", "2018-09-24", "2019-10-01", "2020-10-27", "2021-01-03",
		"2021-03-23", "2021-07-15", "2022-07-09", "2022-09-24", "2024-04-11", "latest",
	}
}

// buildTree makes the tree of the instance in its present state (the spot notice).
//
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-categories.html
func (s *Server) buildTree(spot *SpotNotice) *tree {
	c := s.cfg
	documents := make(map[string]document)
	text := func(path, value string) {
		documents[path] = document{"text/plain", func() []byte { return []byte(value) }}
	}
	fresh := func(path string, value func() string) {
		documents[path] = document{"text/plain", func() []byte { return []byte(value()) }}
	}

	for entry, value := range c.plain(spot) {
		text("meta-data/"+entry, value)
	}
	for entry, value := range c.network() {
		text("meta-data/network/interfaces/macs/"+c.MAC+"/"+entry, value)
	}
	for key, value := range c.InstanceTags {
		text("meta-data/tags/instance/"+key, value)
	}
	if spot != nil {
		for entry, value := range spot.documents() {
			text("meta-data/"+entry, value)
		}
	}

	fresh("meta-data/iam/info", s.profile)
	fresh("meta-data/iam/security-credentials/"+c.Role, func() string {
		return s.credentials(NodeAccessKeyID, NodeSecretAccessKey, NodeSessionToken, "")
	})
	if c.Extended {
		fresh("meta-data/iam/security-credentials-extended/"+c.Role, func() string {
			return s.credentials(NodeAccessKeyID, NodeSecretAccessKey, NodeSessionToken, c.Account)
		})
	}
	fresh("meta-data/identity-credentials/ec2/security-credentials/ec2-instance", func() string {
		return s.credentials(IdentityAccessKeyID, IdentitySecretAccessKey, IdentitySessionToken, "")
	})
	fresh("meta-data/identity-credentials/ec2/info", func() string {
		return fmt.Sprintf("{\n  \"Code\" : \"Success\",\n  \"LastUpdated\" : %q,\n  \"AccountId\" : %q\n}",
			stamp(s.issued()), c.Account)
	})
	text("meta-data/public-keys/0/openssh-key", "ssh-rsa "+SSHKeyMarker+" sandbox")
	text("meta-data/managed-ssh-keys/signer-cert", "-----BEGIN CERTIFICATE-----\n"+ManagedMarker+"\n-----END CERTIFICATE-----")
	text("meta-data/managed-ssh-keys/signer-ocsp/sandbox", ManagedMarker)
	text("meta-data/managed-ssh-keys/active-keys/ec2-user", "ssh-rsa "+ManagedMarker+" connect")

	text("dynamic/instance-identity/document", s.identityDocument())
	text("dynamic/instance-identity/pkcs7", base64Lines(PKCS7Marker))
	text("dynamic/instance-identity/rsa2048", base64Lines(RSA2048Marker))
	text("dynamic/instance-identity/signature", base64Lines(SignatureMarker))
	if c.UserData != "" {
		body := []byte(strings.TrimSuffix(c.UserData, "\n") + "\n# " + UserDataMarker + "\n")
		documents["user-data"] = document{"application/octet-stream", func() []byte { return body }}
	}
	return newTree(documents, map[string]string{"meta-data/public-keys": "0=sandbox"})
}

// plain are the entries of meta-data that are no secret. // :: path below meta-data -> value
func (c Config) plain(spot *SpotNotice) map[string]string {
	lifeCycle := "on-demand"
	if spot != nil {
		lifeCycle = "spot"
	}
	return map[string]string{
		"ami-id":                             c.ImageID,
		"ami-launch-index":                   "0",
		"ami-manifest-path":                  "(unknown)",
		"autoscaling/target-lifecycle-state": "InService",
		"block-device-mapping/ami":           "/dev/xvda",
		"block-device-mapping/root":          "/dev/xvda",
		"events/maintenance/history":         "[]",
		"events/maintenance/scheduled":       "[]",
		"hostname":                           c.hostname(),
		"instance-action":                    "none",
		"instance-id":                        c.InstanceID,
		"instance-life-cycle":                lifeCycle,
		"instance-type":                      c.InstanceType,
		"local-hostname":                     c.hostname(),
		"local-ipv4":                         c.PrivateIP.String(),
		"mac":                                c.MAC,
		"metrics/vhostmd":                    `<?xml version="1.0" encoding="UTF-8"?>`,
		"placement/availability-zone":        c.Zone,
		"placement/availability-zone-id":     c.ZoneID,
		"placement/region":                   c.Region,
		"profile":                            "default-hvm",
		"reservation-id":                     "r-0fedcba9876543210",
		"security-groups":                    "sandbox",
		"services/domain":                    c.domain(),
		"services/partition":                 c.Partition,
		"system":                             "nitro",
	}
}

// network are the entries of the only interface. // :: path below the interface's MAC -> value
func (c Config) network() map[string]string {
	return map[string]string{
		"device-number":           "0",
		"interface-id":            "eni-0123456789abcdef0",
		"local-hostname":          c.hostname(),
		"local-ipv4s":             c.PrivateIP.String(),
		"mac":                     c.MAC,
		"owner-id":                c.Account,
		"security-group-ids":      "sg-0123456789abcdef0",
		"security-groups":         "sandbox",
		"subnet-id":               "subnet-0123456789abcdef0",
		"subnet-ipv4-cidr-block":  "10.0.1.0/24",
		"vpc-id":                  "vpc-0123456789abcdef0",
		"vpc-ipv4-cidr-block":     "10.0.0.0/16",
		"vpc-ipv4-cidr-blocks":    "10.0.0.0/16",
		"network-card-index":      "0",
		"subnet-ipv4-cidr-blocks": "10.0.1.0/24",
	}
}

// SpotNotice is an interruption of a spot instance.
//
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
type SpotNotice struct {
	Action string    // terminate, stop or hibernate
	Time   time.Time // when
}

func (n *SpotNotice) documents() map[string]string {
	documents := map[string]string{
		"spot/instance-action":             fmt.Sprintf(`{"action":%q,"time":%q}`, n.Action, stamp(n.Time)),
		"events/recommendations/rebalance": fmt.Sprintf(`{"noticeTime":%q}`, stamp(n.Time)),
	}
	if n.Action != "hibernate" {
		documents["spot/termination-time"] = stamp(n.Time)
	}
	return documents
}

// SetSpot makes the instance a spot instance that has been told of its interruption; nil takes the notice back, and
// spot/… answers 404 again.
func (s *Server) SetSpot(notice *SpotNotice) { s.tree.Store(s.buildTree(notice)) }
