package imds

import (
	"slices"
	"strconv"
	"strings"
)

// reading is what a request target was understood to mean.
type reading struct {
	version string // "latest"; empty only for the root
	path    string // below the version, no slash at either end, in the tree's spelling where it has one
	ok      bool   // false: it means nothing here
}

// String is the canonical path of the reading.
func (r reading) String() string {
	return "/" + strings.Trim(r.version+"/"+r.path, "/")
}

func (r reading) isToken() bool { return r.ok && r.path == "api/token" }

// understand reads the path of a request target (RFC 9112 §3.2, origin form or absolute form).
func (s *Server) understand(target string) reading {
	if scheme, rest, ok := strings.Cut(target, "://"); ok && !strings.Contains(scheme, "/") {
		_, path, _ := strings.Cut(rest, "/")
		target = "/" + path
	}
	target, _, _ = strings.Cut(target, "?")
	if s.cfg.Paths == Lenient {
		return s.worst(target)
	}
	return s.exact(target)
}

// exact understands canonical paths only.
func (s *Server) exact(target string) reading {
	path, ok := strings.CutPrefix(target, "/")
	version, below, _ := strings.Cut(strings.TrimSuffix(path, "/"), "/")
	r := reading{version: version, path: below}
	known := version == "" || slices.Contains(versions(), version)
	r.ok = ok && known && !strings.Contains(target, "//")
	return r
}

// worst returns the first reading that names a secret, else the first that names anything, else one that does not.
func (s *Server) worst(target string) reading {
	tree := s.tree.Load()
	var best *reading
	for _, segments := range readings(target) {
		if len(segments) == 0 {
			if best == nil {
				best = &reading{ok: true} // the root
			}
			continue
		}
		candidates := []reading{
			{version: segments[0], path: strings.Join(segments[1:], "/")},
			{version: "latest", path: strings.Join(segments, "/")}, // the version left out
		}
		for _, r := range candidates {
			var found bool
			if found = strings.EqualFold(r.path, "api/token"); found {
				r.path = "api/token"
			} else if spelling, ok := tree.find(r.path); ok {
				r.path, found = spelling, true
			}
			r.version = strings.ToLower(r.version)
			r.ok = true
			if isSecret(r.path) {
				return r
			}
			if best == nil && found {
				best = &r
			}
		}
	}
	if best != nil {
		return *best
	}
	return reading{path: strings.TrimPrefix(target, "/")}
}

// readings returns the segments that servers in the wild would make of a path: each depth of decoding, each way to
// treat parameters and NUL, dot segments resolved or dropped.
func readings(path string) [][]string {
	var all [][]string
	for range 4 {
		for _, cut := range []func(string) string{cutRest, cutParameters, dropControls} {
			slashed := strings.ReplaceAll(cut(path), `\`, "/")
			for _, resolve := range []bool{true, false} {
				all = append(all, split(slashed, resolve))
			}
		}
		decoded := unescape(path)
		if decoded == path {
			break
		}
		path = decoded
	}
	return all
}

// cutRest ends the path at a parameter, a query, a fragment or the NUL at which C ends a string.
func cutRest(path string) string {
	if i := strings.IndexAny(path, ";\x00?#"); i >= 0 {
		return path[:i]
	}
	return path
}

// cutParameters takes `;…` out of each segment, as servlet containers do.
func cutParameters(path string) string {
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		segments[i], _, _ = strings.Cut(segment, ";")
	}
	return cutRest(strings.Join(segments, "/"))
}

// dropControls takes control characters out of the path and keeps what follows them.
func dropControls(path string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, path)
}

// split folds slashes, trims the white space and the final dots that some file systems ignore, and resolves dot
// segments (RFC 3986 §5.2.4) or drops them.
func split(path string, resolve bool) []string {
	var segments []string
	for segment := range strings.SplitSeq(path, "/") {
		segment = strings.TrimSpace(segment)
		switch segment {
		case "", ".":
		case "..":
			if resolve && len(segments) > 0 {
				segments = segments[:len(segments)-1]
			}
		default:
			if segment = strings.TrimRight(segment, ". "); segment != "" {
				segments = append(segments, segment)
			}
		}
	}
	return segments
}

// unescape decodes %XX and %uXXXX once, leaves what is malformed as it is, and takes the overlong UTF-8 forms of `/`,
// `.` and `\` for what they once passed as.
func unescape(path string) string {
	var decoded strings.Builder
	for i := 0; i < len(path); i++ {
		if path[i] == '%' {
			if i+2 < len(path) {
				if v, err := strconv.ParseUint(path[i+1:i+3], 16, 8); err == nil {
					decoded.WriteByte(byte(v))
					i += 2
					continue
				}
			}
			if i+5 < len(path) && (path[i+1] == 'u' || path[i+1] == 'U') {
				if v, err := strconv.ParseUint(path[i+2:i+6], 16, 16); err == nil {
					decoded.WriteRune(rune(v))
					i += 5
					continue
				}
			}
		}
		decoded.WriteByte(path[i])
	}
	overlong := strings.NewReplacer("\xc0\xaf", "/", "\xc0\xae", ".", "\xc1\x9c", `\`,
		"\xe0\x80\xaf", "/", "\xe0\x80\xae", ".", "\xe0\x81\x9c", `\`)
	return overlong.Replace(decoded.String())
}
