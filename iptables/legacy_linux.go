package iptables

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A legacyTable is a table of iptables-legacy, which the kernel keeps apart from nf_tables.
type legacyTable struct {
	name   string
	ipv6   bool
	chains []string // built-in ones and others
	rules  []legacyRule
}

// The numbers of linux/netfilter_ipv4/ip_tables.h, which linux/netfilter_ipv6/ip6_tables.h shares.
const (
	legacyGetInfo    = 64 // IPT_SO_GET_INFO
	legacyGetEntries = 65 // IPT_SO_GET_ENTRIES

	legacyInfoSize     = 84 // struct ipt_getinfo
	legacyEntriesStart = 40 // where the entries begin in struct ipt_get_entries
	legacyNameSize     = 32 // XT_TABLE_MAXNAMELEN
)

// legacyTables reads the tables that exist, and makes none. iptables-legacy asks on a raw socket, for which it needs
// NET_RAW; on a socket for UDP the kernel answers as well, and NET_ADMIN is enough.
func legacyTables(ipv6 bool) ([]legacyTable, error) {
	list, family, level := "ip_tables_names", unix.AF_INET, unix.SOL_IP
	if ipv6 {
		list, family, level = "ip6_tables_names", unix.AF_INET6, unix.SOL_IPV6
	}
	// Asking for a table makes it, and loads modules; so only what is named here is asked for.
	data, err := os.ReadFile("/proc/thread-self/net/" + list)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("looking for iptables-legacy: %w", err)
	}
	names := strings.Fields(string(data))
	if len(names) == 0 {
		return nil, nil
	}
	slices.Sort(names)
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("reading iptables-legacy: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	var tables []legacyTable
	for _, name := range names {
		t, err := readLegacyTable(fd, level, name, ipv6)
		if err != nil {
			return nil, fmt.Errorf("reading the table %s of iptables-legacy: %w", name, explain(err))
		}
		tables = append(tables, t)
	}
	return tables, nil
}

// readLegacyTable reads one table. Between the question for its size and that for its rules it may change.
func readLegacyTable(fd, level int, name string, ipv6 bool) (legacyTable, error) {
	for range 5 {
		info := make([]byte, legacyInfoSize)
		copy(info[:legacyNameSize-1], name)
		if err := getsockopt(fd, level, legacyGetInfo, info); err != nil {
			return legacyTable{}, err
		}
		size := binary.NativeEndian.Uint32(info[legacyInfoSize-4:])
		entries := make([]byte, legacyEntriesStart+size)
		copy(entries[:legacyNameSize-1], name)
		binary.NativeEndian.PutUint32(entries[legacyNameSize:], size)
		err := getsockopt(fd, level, legacyGetEntries, entries)
		if errors.Is(err, unix.EAGAIN) {
			continue
		} else if err != nil {
			return legacyTable{}, err
		}
		return parseLegacyTable(name, ipv6, info, entries[legacyEntriesStart:])
	}
	return legacyTable{}, unix.EAGAIN
}

// getsockopt is getsockopt(2) with a buffer that the kernel reads as well.
func getsockopt(fd, level, option int, buffer []byte) error {
	size := uint32(len(buffer))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(unsafe.SliceData(buffer))), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// The built-in chains in the order of the kernel's hooks.
var hookChains = []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}

// parseLegacyTable takes apart what the kernel answered: entries one after the other, each of which says where the next
// begins. A built-in chain begins where the hook does; another begins with an entry whose target ERROR names it.
func parseLegacyTable(name string, ipv6 bool, info, blob []byte) (legacyTable, error) {
	t := legacyTable{name: name, ipv6: ipv6}
	if len(info) < legacyInfoSize {
		return t, errors.New("the kernel's answer is cut short")
	}
	valid := binary.NativeEndian.Uint32(info[legacyNameSize:])
	starts := map[int]string{} // :: offset -> built-in chain
	for i, chain := range hookChains {
		if valid&(1<<i) != 0 {
			starts[int(binary.NativeEndian.Uint32(info[legacyNameSize+4+4*i:]))] = chain
		}
	}
	var (
		chain    string
		position int
		begins   = map[int]string{} // :: offset of a chain's first rule -> the chain
		jumps    []int              // :: index of rule -> offset of where it jumps to; 0: it does not
	)
	for at := 0; at < len(blob); {
		e, err := parseLegacyEntry(blob[at:], ipv6)
		if err != nil {
			return t, err
		}
		if builtIn, ok := starts[at]; ok {
			chain, position = builtIn, 0
			t.chains = append(t.chains, chain)
		}
		next := at + e.size
		if e.target == "ERROR" {
			if next < len(blob) { // the last one ends the table
				named, _, _ := bytes.Cut(e.data, []byte{0})
				chain, position = string(named), 0
				t.chains = append(t.chains, chain)
				begins[next] = chain
			}
			at = next
			continue
		}
		position++
		e.rule.chain, e.rule.position = chain, position
		t.rules = append(t.rules, e.rule)
		jumps = append(jumps, e.jump)
		at = next
	}
	for i, to := range jumps {
		if named, ok := begins[to]; ok {
			t.rules[i].jump = named
		}
	}
	return t, nil
}
