package imds

import (
	"fmt"
	"strings"
	"time"
)

// stamp is the time format of every date that the metadata service and STS give.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

// issued is when the node role's present credentials were issued: they are renewed at half of their life.
func (s *Server) issued() time.Time {
	period := max(1, s.cfg.CredentialLifetime/2)
	return s.started.Add(time.Since(s.started) / period * period)
}

// credentials is a credential document in the layout of the real one. accountID is only in the extended one.
func (s *Server) credentials(accessKeyID, secretAccessKey, token, accountID string) string {
	issued := s.issued()
	account := ""
	if accountID != "" {
		account = fmt.Sprintf(",\n  \"AccountId\" : %q", accountID)
	}
	return fmt.Sprintf(`{
  "Code" : "Success",
  "LastUpdated" : %q,
  "Type" : "AWS-HMAC",
  "AccessKeyId" : %q,
  "SecretAccessKey" : %q,
  "Token" : %q,
  "Expiration" : %q%s
}`, stamp(issued), accessKeyID, secretAccessKey, token, stamp(issued.Add(s.cfg.CredentialLifetime)), account)
}

func (s *Server) profile() string {
	return fmt.Sprintf(`{
  "Code" : "Success",
  "LastUpdated" : %q,
  "InstanceProfileArn" : %q,
  "InstanceProfileId" : "AIPASANDBOXPROFILEAB2"
}`, stamp(s.issued()), s.cfg.profileARN())
}

// identityDocument is the instance identity document, in the field order and layout of the real one.
//
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instance-identity-documents.html
func (s *Server) identityDocument() string {
	c := s.cfg
	return fmt.Sprintf(`{
  "accountId" : %q,
  "architecture" : "x86_64",
  "availabilityZone" : %q,
  "billingProducts" : null,
  "devpayProductCodes" : null,
  "marketplaceProductCodes" : null,
  "imageId" : %q,
  "instanceId" : %q,
  "instanceType" : %q,
  "kernelId" : null,
  "pendingTime" : %q,
  "privateIp" : %q,
  "ramdiskId" : null,
  "region" : %q,
  "version" : "2017-09-30"
}`, c.Account, c.Zone, c.ImageID, c.InstanceID, c.InstanceType, stamp(s.started), c.PrivateIP, c.Region)
}

// base64Lines is a made-up signature that begins with its marker: three lines of base64.
func base64Lines(marker string) string {
	const width = 64
	first := marker + strings.Repeat("A", width-len(marker))
	return first + "\n" + strings.Repeat("B", width) + "\n" + strings.Repeat("C", width-2) + "=="
}
