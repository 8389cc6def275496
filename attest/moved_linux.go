package attest

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// settle is how long before a connection an address must have stayed where it is. An address that is given to another
// pod does not count as moved, since the first pod's interface is gone by then.
const settle = time.Second

// Moved reports whether an address went from one living interface to another since a connection from it was accepted,
// or shortly before: on a bridge, somebody answers for the address of another, and whose requests the connection brings
// cannot be told. It asks the kernel, whose notifications may not have been read yet.
func (a *Attest) Moved(addr netip.Addr, accepted time.Time) bool {
	a.mu.RLock()
	n, bridged := a.table.neighbours[addr]
	_, routed := a.table.routes[addr]
	a.mu.RUnlock()
	if bridged && !routed {
		a.look(addr, n)
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	moved, ok := a.table.moves[addr]
	return ok && moved.at.After(accepted.Add(-settle))
}

// look reads where an address is at this moment. What the kernel does not tell stays as it is.
func (a *Attest) look(addr netip.Addr, was station) {
	neighbour, err := getNeighbour(family(addr), was.dev, nl.NewRtAttr(netlink.NDA_DST, addr.AsSlice()))
	if err != nil {
		return
	}
	seat, err := getNeighbour(unix.AF_BRIDGE, 0,
		nl.NewRtAttr(netlink.NDA_LLADDR, neighbour.HardwareAddr), nl.NewRtAttr(netlink.NDA_MASTER, nl.Uint32Attr(uint32(was.dev))))
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	neighbourUpdate(a.table, true, *neighbour, now)
	if err == nil {
		neighbourUpdate(a.table, true, *seat, now)
	}
}

func family(addr netip.Addr) uint8 {
	if addr.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// getNeighbour reads one entry of the neighbour table or, for family AF_BRIDGE, of a bridge's forwarding table.
func getNeighbour(family uint8, dev int, attributes ...*nl.RtAttr) (*netlink.Neigh, error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETNEIGH, 0)
	// struct ndmsg, whose padding the kernel wants to be zero; netlink.Ndmsg does not care about its own.
	header := make([]byte, 12)
	header[0] = family
	binary.NativeEndian.PutUint32(header[4:], uint32(dev))
	request.AddRawData(header)
	for _, attribute := range attributes {
		request.AddRawData(attribute.Serialize())
	}
	answers, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH)
	if err != nil {
		return nil, err
	}
	if len(answers) != 1 {
		return nil, fmt.Errorf("got %d entries, want one", len(answers))
	}
	return netlink.NeighDeserialize(answers[0])
}
