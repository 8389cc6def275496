package imds

import (
	"slices"
	"strings"
)

// document is a leaf of the tree.
type document struct {
	contentType string
	body        func() []byte
}

// tree is what lies below a version segment: documents, and the listings of the directories that they imply. A tree is
// not changed once it is built.
type tree struct {
	documents map[string]document // :: path without leading slash -> document
	listings  map[string][]byte   // :: directory path -> its entries, one a line
	folded    map[string]string   // :: lower-case path of a document or directory -> path
}

// newTree builds the tree of those documents. A directory whose listing the documents do not imply (public keys are
// listed as `0=name`) is given in listings.
func newTree(documents map[string]document, listings map[string]string) *tree {
	t := &tree{documents: documents, listings: make(map[string][]byte), folded: make(map[string]string)}
	children := make(map[string][]string)
	for path := range documents {
		t.folded[strings.ToLower(path)] = path
		for path != "" {
			dir, entry := cutLast(path)
			if _, isDocument := documents[path]; !isDocument && dir != "" {
				entry += "/" // the top level alone lists its directories without a slash
			}
			if slices.Contains(children[dir], entry) {
				break
			}
			children[dir] = append(children[dir], entry)
			path = dir
		}
	}
	for dir, entries := range children {
		slices.Sort(entries)
		t.listings[dir] = []byte(strings.Join(entries, "\n"))
		t.folded[strings.ToLower(dir)] = dir
	}
	for dir, listing := range listings {
		t.listings[dir] = []byte(listing)
	}
	return t
}

// get returns what a path without leading or trailing slash names.
func (t *tree) get(path string) (body []byte, contentType string, ok bool) {
	if doc, ok := t.documents[path]; ok {
		return doc.body(), doc.contentType, true
	}
	listing, ok := t.listings[path]
	return listing, "text/plain", ok
}

// find returns the path's spelling in the tree, ignoring case.
func (t *tree) find(path string) (string, bool) {
	found, ok := t.folded[strings.ToLower(path)]
	return found, ok
}

func cutLast(path string) (dir, entry string) {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i], path[i+1:]
	}
	return "", path
}

// isSecret says whether a path below the version segment is, or lies under, one that no pod may reach: whether the
// server serves something there or not. Case is ignored.
func isSecret(path string) bool {
	path = strings.ToLower(path)
	for _, secret := range [...]string{
		"meta-data/iam",
		"meta-data/identity-credentials",
		"meta-data/public-keys",
		"meta-data/managed-ssh-keys",
		"dynamic/instance-identity/pkcs7",
		"dynamic/instance-identity/rsa2048",
		"dynamic/instance-identity/signature",
		"user-data",
	} {
		if path == secret || strings.HasPrefix(path, secret+"/") {
			return true
		}
	}
	return false
}
