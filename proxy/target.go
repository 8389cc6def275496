package proxy

import (
	"slices"
	"strings"
)

// route is what a request is for. The zero value is answered with 400.
type route int

const (
	routeInvalid route = iota
	// routeMethod is a path that can be read with a method that it does not have.
	routeMethod
	// routeDenied is a path that names a secret, or might.
	routeDenied
	// routeDatedToken is the token path under a version other than latest, which EC2 forbids.
	routeDatedToken
	routeToken
	routeList
	routeRole
	routeExtendedList
	routeExtendedRole
	routeInfo
	routeUserData
	// routePassThrough is everything else; the pass-through's mode decides further.
	routePassThrough
)

// String returns the route as it stands in metric labels and logs.
func (r route) String() string {
	switch r {
	case routeInvalid:
		return "invalid"
	case routeMethod:
		return "method"
	case routeDenied:
		return "denied"
	case routeDatedToken, routeToken:
		return "token"
	case routeList:
		return "list"
	case routeRole:
		return "role"
	case routeExtendedList:
		return "extended-list"
	case routeExtendedRole:
		return "extended-role"
	case routeInfo:
		return "info"
	case routeUserData:
		return "user-data"
	case routePassThrough:
		return "pass-through"
	}
	return "invalid"
}

// credentials reports whether the route is about the pod's role: such requests are logged one by one.
func (r route) credentials() bool { return r >= routeList && r <= routeInfo }

// target is what a request line asks for.
type target struct {
	route route
	path  string // canonical; only for routeUserData and routePassThrough
	role  string // as asked for, unescaped; only for routeRole and routeExtendedRole
	allow string // the methods that the path has; only for routeMethod
}

// classify decides what a request asks for. It is the only reader of request targets.
//
// raw is the request target as it stands in the request line. Nothing is resolved and nothing is repaired: a target
// that two HTTP servers could understand differently is invalid. Repeated and trailing slashes are the exception,
// because EC2 tolerates them (https://github.com/ex-aws/ex_aws/pull/496). What is served must match exactly; what is
// denied is denied in any case and at any depth.
func classify(method, raw string) target {
	path, ok := pathOf(method, raw)
	if !ok {
		return target{}
	}
	var array [12]string
	segments, ok := split(array[:0], path)
	if !ok {
		return target{}
	}
	kind := credentialRoute(segments)
	role := ""
	if kind == routeRole || kind == routeExtendedRole {
		role = strings.Join(segments[4:], "/")
	}
	if strings.IndexByte(path, '%') >= 0 {
		// Only a role may be escaped: some SDKs escape the colons and slashes of an ARN.
		if role == "" || strings.IndexByte(segments[0], '%') >= 0 {
			return target{}
		}
		if role, ok = unescapeRole(role); !ok {
			return target{}
		}
	}

	if method == "PUT" && len(segments) == 3 && segments[1] == "api" && segments[2] == "token" {
		if segments[0] == "latest" {
			return target{route: routeToken}
		}
		return target{route: routeDatedToken}
	}
	if method != "GET" && method != "HEAD" {
		return target{route: routeMethod, allow: "GET, HEAD"}
	}
	switch {
	case kind != routeInvalid:
		return target{route: kind, role: role}
	case len(segments) == 3 && segments[0] == "latest" && segments[1] == "api" && segments[2] == "token":
		return target{route: routeMethod, allow: "PUT"}
	case len(segments) == 2 && segments[1] == "user-data" && !deniedSegment(segments[0]):
		return target{route: routeUserData, path: canonical(segments, path)}
	}
	if slices.ContainsFunc(segments, deniedSegment) { // the version as well: some servers take a path without one
		return target{route: routeDenied}
	}
	return target{route: routePassThrough, path: canonical(segments, path)}
}

// credentialRoute tells which of the paths under iam it is, or routeInvalid. Any version will do, as for EC2's data.
func credentialRoute(segments []string) route {
	if len(segments) < 4 || segments[1] != "meta-data" || segments[2] != "iam" {
		return routeInvalid
	}
	more := len(segments) > 4
	switch segments[3] {
	case "security-credentials":
		if more {
			return routeRole
		}
		return routeList
	case "security-credentials-extended":
		if more {
			return routeExtendedRole
		}
		return routeExtendedList
	case "info":
		if !more {
			return routeInfo
		}
	}
	return routeInvalid
}

// pathOf takes the path from a request target in origin form or absolute form (RFC 9112, 3.2). It drops the query,
// which no metadata path has, but not before it has looked at it.
func pathOf(method, raw string) (path string, ok bool) {
	const scheme = "http://"
	switch {
	case method == "CONNECT":
		return "", false
	case strings.HasPrefix(raw, "/"):
		path = raw
	case len(raw) > len(scheme) && strings.EqualFold(raw[:len(scheme)], scheme):
		// The authority is dropped unread: it says neither who is asking nor where to send anything.
		rest := raw[len(scheme):]
		end := strings.IndexByte(rest, '/')
		if end < 1 || strings.ContainsAny(rest[:end], "?#\\") {
			return "", false
		}
		path = rest[end:]
	default:
		return "", false
	}
	path, query, _ := strings.Cut(path, "?")
	for i := range len(query) {
		if c := query[i]; c <= ' ' || c >= 0x7f || c == '%' || c == ';' || c == '\\' {
			return "", false
		}
	}
	for i := range len(path) {
		if c := path[i]; !legal(c) && c != '%' {
			return "", false
		}
	}
	return path, true
}

// legal reports whether c occurs in metadata paths: in EC2's own, in names and ARNs of roles
// (https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html) and in keys of instance tags.
func legal(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	switch c {
	case '/', '-', '.', '_', '~', '+', '=', ',', ':', '@':
		return true
	}
	return false
}

// split appends the segments of path to segments. Empty ones are dropped; dot segments are never resolved but refused.
func split(segments []string, path string) (_ []string, ok bool) {
	for rest := path; rest != ""; {
		var s string
		s, rest, _ = strings.Cut(rest, "/")
		switch s {
		case "":
		case ".", "..":
			return nil, false
		default:
			segments = append(segments, s)
		}
	}
	return segments, true
}

// canonical writes the segments out as the only spelling of their path that is ever sent on, with the trailing slash
// that the client chose: EC2 answers both, and SDKs ask with and without.
func canonical(segments []string, path string) string {
	if len(segments) == 0 {
		return "/"
	}
	size := 0
	for _, s := range segments {
		size += len("/") + len(s)
	}
	slash := path[len(path)-1] == '/'
	if slash {
		size++
	}
	if len(path) == size {
		return path // nothing was dropped
	}
	var b strings.Builder
	b.Grow(size)
	for _, s := range segments {
		b.WriteByte('/')
		b.WriteString(s)
	}
	if slash {
		b.WriteByte('/')
	}
	return b.String()
}

// unescapeRole decodes the percent-escapes of a role once. What then still has a percent sign, or anything else that
// no role has, is refused.
func unescapeRole(escaped string) (role string, ok bool) {
	b := make([]byte, 0, len(escaped))
	for i := 0; i < len(escaped); i++ {
		c := escaped[i]
		if c == '%' {
			if i+2 >= len(escaped) {
				return "", false
			}
			high, low := unhex(escaped[i+1]), unhex(escaped[i+2])
			if high < 0 || low < 0 {
				return "", false
			}
			c = byte(high<<4 | low)
			i += 2
		}
		if !legal(c) {
			return "", false
		}
		b = append(b, c)
	}
	segments, ok := split(nil, string(b))
	return strings.Join(segments, "/"), ok && len(segments) > 0
}

func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
