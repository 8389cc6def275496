package iptables

import (
	"errors"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// netlinkWatcher listens to the kernel's notifications.
type netlinkWatcher struct {
	conn     *netlink.Conn
	concerns func(netlink.Message) bool
	changed  chan struct{}
	done     chan struct{}
}

func (nft) watch() (watcher, error) { return watchNft(concernsUs) }

func watchNft(concerns func(netlink.Message) bool) (watcher, error) {
	return watchNetlink(unix.NETLINK_NETFILTER, []uint32{unix.NFNLGRP_NFTABLES}, concerns)
}

func watchNetlink(protocol int, groups []uint32, concerns func(netlink.Message) bool) (watcher, error) {
	c, err := netlink.Dial(protocol, nil)
	if err != nil {
		return nil, explain(err)
	}
	for _, group := range groups {
		if err := c.JoinGroup(group); err != nil {
			_ = c.Close()
			return nil, explain(err)
		}
	}
	w := &netlinkWatcher{conn: c, concerns: concerns, changed: make(chan struct{}, 1), done: make(chan struct{})}
	go w.listen()
	return w, nil
}

func (w *netlinkWatcher) changes() <-chan struct{} { return w.changed }

func (w *netlinkWatcher) close() {
	_ = w.conn.Close()
	<-w.done
}

// listen closes changed when the socket fails. Overflow is no failure, but a change that was not told.
func (w *netlinkWatcher) listen() {
	defer close(w.done)
	defer close(w.changed)
	for {
		messages, err := w.conn.Receive()
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			return
		}
		news := err != nil
		for _, m := range messages {
			news = news || w.concerns(m)
		}
		if news {
			select {
			case w.changed <- struct{}{}:
			default: // one that is not looked at yet says the same
			}
		}
	}
}

// concernsUs reports whether a notification is about our table. In all of nf_tables' messages the first attribute names
// the table; only that of a new generation has none.
func concernsUs(m netlink.Message) bool {
	kind := m.Header.Type & 0xff
	if m.Header.Type>>8 != unix.NFNL_SUBSYS_NFTABLES || kind == unix.NFT_MSG_NEWGEN ||
		len(m.Data) == 0 || nftables.TableFamily(m.Data[0]) != nftables.TableFamilyINet {
		return false
	}
	ad, err := attributes(m.Data)
	if err != nil {
		return false
	}
	for ad.Next() {
		if ad.Type() == unix.NFTA_TABLE_NAME {
			return ad.String() == tableName
		}
	}
	return false
}
