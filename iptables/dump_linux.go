package iptables

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// A heldRule is a rule as the kernel holds it.
type heldRule struct {
	family       nftables.TableFamily
	table, chain string
	exprs        []any // expr.Any, or opaque
	comment      string
}

// opaque is an expression that we cannot decode, by its name. The nftables library would leave it out, and a rule would
// look like another.
type opaque string

// packets returns what the rule's counter has counted.
func (r heldRule) packets() uint64 {
	for _, e := range r.exprs {
		if c, ok := e.(*expr.Counter); ok {
			return c.Packets
		}
	}
	return 0
}

// dumpRules reads the rules of a table, or with family unspecified and no table those of all tables, in one dump: a node
// with kube-proxy may have thousands of chains.
func dumpRules(family nftables.TableFamily, table string) ([]heldRule, error) {
	var attrs []netlink.Attribute
	if table != "" {
		attrs = append(attrs, netlink.Attribute{Type: unix.NFTA_RULE_TABLE, Data: []byte(table + "\x00")})
	}
	data, err := netlink.MarshalAttributes(attrs)
	if err != nil {
		return nil, err
	}
	messages, err := request(unix.NFT_MSG_GETRULE, netlink.Dump, family, data)
	if err != nil {
		return nil, fmt.Errorf("listing rules: %w", err)
	}
	var rules []heldRule
	for _, m := range messages {
		r, err := decodeRule(m.Data)
		if err != nil {
			return nil, fmt.Errorf("decoding a rule: %w", err)
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// request sends one message to nf_tables and returns the answers.
func request(kind uint16, flags netlink.HeaderFlags, family nftables.TableFamily, attrs []byte) ([]netlink.Message, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	if err := withDeadline(c); err != nil {
		return nil, err
	}
	return c.Execute(netlink.Message{
		Header: netlink.Header{
			Type:  netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | kind),
			Flags: netlink.Request | flags,
		},
		Data: append([]byte{byte(family), unix.NFNETLINK_V0, 0, 0}, attrs...),
	})
}

// steadily repeats a read of several parts until the rules did not change meanwhile: a dump that was interrupted may lack
// things that are there. On a node whose rules change all the time it takes what it has.
func steadily(read func() error) error {
	var err error
	for range 5 {
		var before, after uint32
		if before, err = generation(); err != nil {
			return err
		}
		if err = read(); err != nil {
			if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENOENT) {
				continue
			}
			return err
		}
		if after, err = generation(); err != nil || before == after {
			return err
		}
	}
	return err
}

// generation returns the number of the rule set as it is now; each transaction counts it up.
func generation() (uint32, error) {
	messages, err := request(unix.NFT_MSG_GETGEN, 0, nftables.TableFamilyUnspecified, nil)
	if err != nil {
		return 0, fmt.Errorf("asking for nftables: %w", err)
	}
	for _, m := range messages {
		ad, err := attributes(m.Data)
		if err != nil {
			return 0, err
		}
		for ad.Next() {
			if ad.Type() == unix.NFTA_GEN_ID {
				return ad.Uint32(), ad.Err()
			}
		}
	}
	return 0, errors.New("asking for nftables: no answer")
}

// attributes decodes what follows the 4 bytes of nfgenmsg.
func attributes(message []byte) (*netlink.AttributeDecoder, error) {
	if len(message) < 4 {
		return nil, fmt.Errorf("a message of %d bytes is too short", len(message))
	}
	ad, err := netlink.NewAttributeDecoder(message[4:])
	if err != nil {
		return nil, err
	}
	ad.ByteOrder = binary.BigEndian
	return ad, nil
}

func decodeRule(message []byte) (heldRule, error) {
	var r heldRule
	ad, err := attributes(message)
	if err != nil {
		return r, err
	}
	r.family = nftables.TableFamily(message[0])
	for ad.Next() {
		switch ad.Type() {
		case unix.NFTA_RULE_TABLE:
			r.table = ad.String()
		case unix.NFTA_RULE_CHAIN:
			r.chain = ad.String()
		case unix.NFTA_RULE_USERDATA:
			r.comment = commentOf(ad.Bytes())
		case unix.NFTA_RULE_EXPRESSIONS:
			ad.Nested(func(list *netlink.AttributeDecoder) error {
				for list.Next() {
					list.Nested(func(e *netlink.AttributeDecoder) error {
						r.exprs = append(r.exprs, decodeExpr(byte(r.family), e))
						return nil
					})
				}
				return nil
			})
		}
	}
	return r, ad.Err()
}

func decodeExpr(family byte, ad *netlink.AttributeDecoder) any {
	var (
		name string
		data []byte
	)
	for ad.Next() {
		switch ad.Type() {
		case unix.NFTA_EXPR_NAME:
			name = ad.String()
		case unix.NFTA_EXPR_DATA:
			data = ad.Bytes()
		}
	}
	e := emptyExpr(name)
	if e == nil || expr.Unmarshal(family, data, e) != nil {
		return opaque(name)
	}
	// A verdict comes as an immediate value for the verdict register.
	if imm, ok := e.(*expr.Immediate); ok && imm.Register == unix.NFT_REG_VERDICT {
		v := &expr.Verdict{}
		if expr.Unmarshal(family, data, v) != nil {
			return opaque("verdict")
		}
		return v
	}
	return e
}

// emptyExpr returns a value to decode into, or nil for what we do not render.
func emptyExpr(name string) expr.Any {
	switch name {
	case "meta":
		return &expr.Meta{}
	case "payload":
		return &expr.Payload{}
	case "bitwise":
		return &expr.Bitwise{}
	case "cmp":
		return &expr.Cmp{}
	case "counter":
		return &expr.Counter{}
	case "immediate":
		return &expr.Immediate{}
	case "nat":
		return &expr.NAT{}
	case "reject":
		return &expr.Reject{}
	case "notrack":
		return &expr.Notrack{}
	case "target":
		return &expr.Target{}
	case "match":
		return &expr.Match{}
	case "lookup":
		return &expr.Lookup{}
	}
	return nil
}

// Comments are a TLV of type 0 with a terminating NUL in a rule's user data, as libnftnl writes them.
const udataComment = 0

func commentData(comment string) []byte {
	return append([]byte{udataComment, byte(len(comment) + 1)}, comment+"\x00"...)
}

func commentOf(data []byte) string {
	for len(data) >= 2 {
		kind, n := data[0], int(data[1])
		if data = data[2:]; n > len(data) {
			return ""
		}
		if kind == udataComment && n > 0 {
			return string(data[:n-1])
		}
		data = data[n:]
	}
	return ""
}
