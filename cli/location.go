package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"pod2role/cluster"
	"pod2role/config"
	"pod2role/proxy"
)

// errNotLocated stands until the node's labels have been read.
var errNotLocated = errors.New("the node's zone, which the emulated metadata show, has not been read yet")

// locates says whether the emulated instance is where the node's labels say.
func locates(c config.Config) bool { return c.Metadata == "emulate" && c.EmulateZone == "" }

// locate reads where the node is, for the emulated instance, and tries until it knows.
func (d *daemon) locate(ctx context.Context) error {
	if !locates(d.config) {
		return nil
	}
	for {
		at, err := d.cluster.ReadLocation(ctx)
		if err == nil {
			err = d.proxy.SetInstance(instanceAt(at, d.config))
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			err = fmt.Errorf("taking the zone from the node's label (give --emulate-zone to do without): %w", err)
		}
		d.mu.Lock()
		d.location = err
		d.mu.Unlock()
		d.reportReadiness()
		if err == nil {
			d.log.WithField("zone", at.Zone).Info("zone taken from the node")
			return nil
		}
		if !wait(ctx, discoverRetry) {
			return nil
		}
	}
}

// instanceAt is the emulated instance of a node; what the configuration says of it wins.
func instanceAt(at cluster.Location, c config.Config) proxy.Instance {
	id := ""
	if rest, ok := strings.CutPrefix(at.ProviderID, "aws://"); ok {
		id = path.Base(rest)
	}
	return proxy.Instance{
		Zone: at.Zone, Region: at.Region, InstanceID: cmp.Or(c.EmulateInstanceID, id), AccountID: c.EmulateAccountID,
	}
}
