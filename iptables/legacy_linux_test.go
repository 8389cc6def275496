package iptables

import (
	"encoding/binary"
	"net/netip"
	"testing"
)

// blob is a table with one chain: a rule for the prefix, the policy, and the end.
func blob(ipv6 bool) (info, entries []byte) {
	l := layoutOf(ipv6)
	entry := func(target string, data []byte) []byte {
		b := make([]byte, l.size+legacyExtHead+len(data))
		binary.NativeEndian.PutUint16(b[l.targetOffset:], uint16(l.size))
		binary.NativeEndian.PutUint16(b[l.nextOffset:], uint16(len(b)))
		binary.NativeEndian.PutUint16(b[l.size:], uint16(legacyExtHead+len(data)))
		copy(b[l.size+2:], target)
		copy(b[l.size+legacyExtHead:], data)
		return b
	}
	accept := binary.NativeEndian.AppendUint64(nil, 0xfffffffe)
	entries = append(entries, entry("", accept)...)
	entries = append(entries, entry("", accept)...)
	entries = append(entries, entry("ERROR", make([]byte, 32))...)
	info = make([]byte, legacyInfoSize)
	binary.NativeEndian.PutUint32(info[legacyNameSize:], 1)
	return info, entries
}

func FuzzLegacyTable(f *testing.F) {
	for _, ipv6 := range []bool{false, true} {
		info, entries := blob(ipv6)
		f.Add(ipv6, info, entries)
	}
	f.Fuzz(func(t *testing.T, ipv6 bool, info, entries []byte) {
		table, err := parseLegacyTable("nat", ipv6, info, entries)
		if err != nil {
			return
		}
		for _, r := range table.rules {
			_ = r.names(netip.MustParseAddr("169.254.169.254"))
			if r.position < 1 {
				t.Errorf("the rule %+v has no place", r)
			}
		}
	})
}
