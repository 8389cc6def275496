package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Each function here returns the set function of one kind of option. Their errors say what a value must be, and are
// printed behind the option's name and the value.

const (
	maxHold   = 30 * time.Second
	maxDrain  = 5 * time.Minute
	minResync = time.Second
	maxResync = time.Hour
)

func text(to *string) func(string) error {
	return func(v string) error { *to = v; return nil }
}

func list(to *[]string) func(string) error {
	return func(v string) error { *to = append(*to, v); return nil }
}

func key(to *string) func(string) error {
	return func(v string) error {
		if !annotationKey.MatchString(v) {
			return errors.New("must be the key of an annotation, such as iam.amazonaws.com/role")
		}
		*to = v
		return nil
	}
}

// namespacedName sets the two parts of namespace/name; the empty value sets neither.
func namespacedName(namespace, name *string) func(string) error {
	return func(v string) error {
		first, second, ok := strings.Cut(v, "/")
		if v != "" && (!ok || first == "" || second == "" || strings.Contains(second, "/")) {
			return errors.New("must be a namespace and a name, such as kube-system/pod2role")
		}
		*namespace, *name = first, second
		return nil
	}
}

func boolean(to *bool) func(string) error {
	return func(v string) error {
		b, err := strconv.ParseBool(v)
		if err != nil {
			return errors.New("must be true or false")
		}
		*to = b
		return nil
	}
}

func oneOf(to *string, values ...string) func(string) error {
	return func(v string) error {
		if !slices.Contains(values, v) {
			return fmt.Errorf("must be %s", either(values))
		}
		*to = v
		return nil
	}
}

// redirectSwitch sets --redirect by its old name.
func redirectSwitch(to *string) func(string) error {
	return func(v string) error {
		on, err := strconv.ParseBool(v)
		if err != nil {
			return errors.New("must be true or false")
		}
		*to = "off"
		if on {
			*to = "on"
		}
		return nil
	}
}

func duration(to *time.Duration, least, most time.Duration) func(string) error {
	return func(v string) error {
		d, err := time.ParseDuration(v)
		if err != nil {
			return errors.New("must be a duration with its unit, such as 30s or 5m")
		}
		if d < least || d > most {
			return fmt.Errorf("must be from %s to %s", short(least), short(most))
		}
		*to = d
		return nil
	}
}

func integer(to *int, least, most int) func(string) error {
	return func(v string) error {
		n, err := strconv.Atoi(v)
		if err != nil || n < least || n > most {
			return fmt.Errorf("must be a whole number from %d to %d", least, most)
		}
		*to = n
		return nil
	}
}

func number(to *float64, least, most float64) func(string) error {
	return func(v string) error {
		n, err := strconv.ParseFloat(v, 64)
		if err != nil || !(n >= least && n <= most) { // written so that NaN is refused
			return fmt.Errorf("must be a number from %g to %g", least, most)
		}
		*to = n
		return nil
	}
}

func port(to *uint16) func(string) error {
	return func(v string) error {
		n, err := strconv.ParseUint(v, 10, 16)
		if err != nil || n == 0 {
			return errors.New("must be a port from 1 to 65535")
		}
		*to = uint16(n)
		return nil
	}
}

// loopback accepts only addresses that no pod can reach; the empty value switches the listener off.
func loopback(to *netip.AddrPort) func(string) error {
	return func(v string) error {
		if v == "" {
			*to = netip.AddrPort{}
			return nil
		}
		a, err := netip.ParseAddrPort(v)
		if err != nil || !a.Addr().IsLoopback() {
			return errors.New("must be an address of the loopback interface with a port, such as 127.0.0.1:8183, because whoever reaches it can read which pod has which role")
		}
		*to = a
		return nil
	}
}

func addresses(to *[]netip.Addr) func(string) error {
	return func(v string) error {
		a, err := netip.ParseAddr(v)
		if err != nil || a.Zone() != "" || a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() {
			return errors.New("must be an address of the node, such as 10.0.0.1")
		}
		*to = append(*to, a.Unmap())
		return nil
	}
}

func hostPort(to *string) func(string) error {
	return func(v string) error {
		host, p := splitHostPort(v)
		if _, err := strconv.ParseUint(p, 10, 16); err != nil || host == "" || strings.ContainsAny(host, "/ @") {
			return errors.New("must be a host with an optional port, such as 169.254.169.254 or 127.0.0.1:1338")
		}
		*to = v
		return nil
	}
}

// splitHostPort splits "host", "host:port", "[v6]", "[v6]:port" and a bare IPv6 address; the port is 80 unless given.
func splitHostPort(v string) (host, port string) {
	if a, err := netip.ParseAddr(strings.Trim(v, "[]")); err == nil {
		return a.String(), "80"
	}
	host, port, err := net.SplitHostPort(v)
	if err != nil {
		return v, "80"
	}
	return host, port
}

// short prints a duration without its zero parts: "1h", not "1h0m0s".
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

func either(values []string) string {
	return strings.Join(values[:len(values)-1], ", ") + " or " + values[len(values)-1]
}
