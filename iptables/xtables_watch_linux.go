package iptables

import (
	"slices"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// pollInterval is how often iptables-legacy is looked at: nobody tells of its changes.
const pollInterval = 5 * time.Second

func (x *xtables) watch() (watcher, error) {
	tool, err := x.tool(false)
	if err != nil {
		return nil, err
	}
	if tool.kind == kindLegacy {
		return newPoller(), nil
	}
	return watchNft(concernsIptables)
}

// concernsIptables reports whether a notification is about a chain of ours, one that has to jump to ours, or a whole table
// of those. kube-proxy changes others in the same tables all the time.
func concernsIptables(m netlink.Message) bool {
	if m.Header.Type>>8 != unix.NFNL_SUBSYS_NFTABLES || len(m.Data) == 0 {
		return false
	}
	if f := nftables.TableFamily(m.Data[0]); f != nftables.TableFamilyIPv4 && f != nftables.TableFamilyIPv6 {
		return false
	}
	var chainAttr uint16
	switch m.Header.Type & 0xff {
	case unix.NFT_MSG_NEWTABLE, unix.NFT_MSG_DELTABLE:
	case unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_DELCHAIN:
		chainAttr = unix.NFTA_CHAIN_NAME
	case unix.NFT_MSG_NEWRULE, unix.NFT_MSG_DELRULE:
		chainAttr = unix.NFTA_RULE_CHAIN
	default:
		return false
	}
	ad, err := attributes(m.Data)
	if err != nil {
		return false
	}
	table, chain := "", ""
	for ad.Next() {
		switch ad.Type() {
		case unix.NFTA_RULE_TABLE: // the same number in all of them
			table = ad.String()
		case chainAttr:
			chain = ad.String()
		}
	}
	for _, t := range xtTablesOf(plan{}, false) {
		if t.name == table && (chainAttr == 0 || strings.HasPrefix(chain, xtOurs) || slices.Contains(t.from, chain)) {
			return true
		}
	}
	return false
}

// A poller says every pollInterval that something may have changed.
type poller struct {
	due        chan struct{}
	quit, done chan struct{}
}

func newPoller() *poller {
	p := &poller{due: make(chan struct{}), quit: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		ticker := time.NewTicker(pollInterval)
		defer ticker.Stop()
		for {
			select {
			case <-p.quit:
				return
			case <-ticker.C:
			}
			select {
			case <-p.quit:
				return
			case p.due <- struct{}{}:
			}
		}
	}()
	return p
}

func (p *poller) changes() <-chan struct{} { return p.due }

func (p *poller) close() {
	close(p.quit)
	<-p.done
}
