package proxy

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Instance is what a node that is not on EC2 says of itself.
type Instance struct {
	Zone       string // availability zone, "eu-west-1a"; empty in Config: not known before SetInstance
	Region     string // default: from Zone
	InstanceID string // default i-00000000000000000
	AccountID  string // default 000000000000
	Type       string // instance type, default m5.large
	ImageID    string // default ami-00000000000000000
	LocalIPv4  string // default 127.0.0.1
	MAC        string // default 02:00:00:00:00:00
}

// A zone is its region and something more: eu-west-1a, us-west-2-lax-1a, us-east-1-wl1-bos-wlz-1.
var regionOfZone = regexp.MustCompile(`^[a-z]+(?:-[a-z]+)+-[0-9]+`)

// emulation is a small metadata service: what SDKs and common tools need to find their region and themselves.
type emulation struct {
	tree atomic.Pointer[map[string]string] // :: path below the version -> document or listing; nil: not known yet
}

// errNoInstance is what emulated documents are answered with (503) before SetInstance.
var errNoInstance = errors.New("it is not known yet where the node is")

// emulatedVersions are the versions that exist, a few of EC2's.
func emulatedVersions() []string {
	return []string{"1.0", "2009-04-04", "2012-01-12", "2016-09-02", "2018-09-24", "2021-03-23", "latest"}
}

func newEmulation(i Instance) (*emulation, error) {
	e := &emulation{}
	if i.Zone == "" {
		return e, nil
	}
	return e, e.set(i)
}

// SetInstance says where the node is, if Config.Emulate left that open. It returns an error if Emulate is not set, or if
// the instance has no zone, or one that is in no region.
func (p *Proxy) SetInstance(i Instance) error {
	e, ok := p.documents.(*emulation)
	if !ok {
		return errors.New("the real metadata service answers, so there is no instance to emulate")
	}
	return e.set(i)
}

func (e *emulation) set(i Instance) error {
	i.Region = cmp.Or(i.Region, regionOfZone.FindString(i.Zone))
	i.InstanceID = cmp.Or(i.InstanceID, "i-00000000000000000")
	i.AccountID = cmp.Or(i.AccountID, "000000000000")
	i.Type = cmp.Or(i.Type, "m5.large")
	i.ImageID = cmp.Or(i.ImageID, "ami-00000000000000000")
	i.LocalIPv4 = cmp.Or(i.LocalIPv4, "127.0.0.1")
	i.MAC = cmp.Or(i.MAC, "02:00:00:00:00:00")
	if i.Zone == "" {
		return errors.New("the emulated instance has no availability zone: SDKs take their region from it")
	}
	if i.Region == "" {
		return fmt.Errorf("the emulated instance's zone %q does not begin with a region", i.Zone)
	}
	identity, err := i.identity()
	if err != nil {
		return err
	}
	partition, domain := i.partition()
	hostname := "ip-" + strings.ReplaceAll(i.LocalIPv4, ".", "-") + "." + i.Region + ".compute.internal"
	tree := map[string]string{
		"dynamic/instance-identity/document":    identity,
		"meta-data/ami-id":                      i.ImageID,
		"meta-data/ami-launch-index":            "0",
		"meta-data/hostname":                    hostname,
		"meta-data/iam/info":                    "", // for the listing: served before anything is looked up here
		"meta-data/instance-id":                 i.InstanceID,
		"meta-data/instance-life-cycle":         "on-demand",
		"meta-data/instance-type":               i.Type,
		"meta-data/local-hostname":              hostname,
		"meta-data/local-ipv4":                  i.LocalIPv4,
		"meta-data/mac":                         i.MAC,
		"meta-data/placement/availability-zone": i.Zone,
		"meta-data/placement/region":            i.Region,
		"meta-data/services/domain":             domain,
		"meta-data/services/partition":          partition,
	}
	list(tree)
	e.tree.Store(&tree)
	return nil
}

// list adds the listings of all directories: a name for each line, with a slash if it is one itself.
func list(tree map[string]string) {
	entries := map[string][]string{} // :: directory -> names
	for path := range tree {
		for entry := ""; ; {
			dir, name, below := cutLast(path)
			if !slices.Contains(entries[dir], name+entry) {
				entries[dir] = append(entries[dir], name+entry)
			}
			if !below {
				break
			}
			path, entry = dir, "/"
		}
	}
	for dir, names := range entries {
		slices.Sort(names)
		tree[dir] = strings.Join(names, "\n")
	}
}

// cutLast cuts a path before its last segment; below tells whether there was one before it.
func cutLast(path string) (dir, name string, below bool) {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i], path[i+1:], true
	}
	return "", path, false
}

// partition returns the region's partition, and the domain of its services.
func (i Instance) partition() (partition, domain string) {
	switch {
	case strings.HasPrefix(i.Region, "cn-"):
		return "aws-cn", "amazonaws.com.cn"
	case strings.HasPrefix(i.Region, "us-gov-"):
		return "aws-us-gov", "amazonaws.com"
	default:
		return "aws", "amazonaws.com"
	}
}

// identity renders the instance identity document,
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instance-identity-documents.html.
func (i Instance) identity() (string, error) {
	b, err := json.MarshalIndent(map[string]any{
		"accountId": i.AccountID, "architecture": "x86_64", "availabilityZone": i.Zone, "billingProducts": nil,
		"devpayProductCodes": nil, "imageId": i.ImageID, "instanceId": i.InstanceID, "instanceType": i.Type,
		"kernelId": nil, "marketplaceProductCodes": nil, "pendingTime": time.Unix(0, 0).UTC().Format(timeFormat),
		"privateIp": i.LocalIPv4, "ramdiskId": nil, "region": i.Region, "version": "2017-09-30",
	}, "", "  ")
	if err != nil {
		return "", fmt.Errorf("rendering the identity document: %w", err)
	}
	return string(b), nil
}

// cached implements documents.
func (e *emulation) cached(path string) *reply {
	tree := e.tree.Load()
	if tree == nil {
		return nil
	}
	version, rest, _ := strings.Cut(strings.Trim(path, "/"), "/")
	body, ok := (*tree)[rest]
	switch {
	case version == "":
		body, ok = strings.Join(emulatedVersions(), "\n"), true
	case !slices.Contains(emulatedVersions(), version):
		ok = false
	}
	if !ok {
		return &reply{status: http.StatusNotFound, contentType: xhtml, body: errorPage(http.StatusNotFound)}
	}
	return &reply{status: http.StatusOK, contentType: plainText, body: []byte(body)}
}

// get implements documents.
func (e *emulation) get(_ context.Context, path string) (*reply, error) {
	if found := e.cached(path); found != nil {
		return found, nil
	}
	return nil, errNoInstance
}

// close implements documents.
func (e *emulation) close() {}
