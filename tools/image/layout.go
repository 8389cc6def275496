package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"maps"
	"path"
	"slices"
)

// The media types of the OCI image specification, v1.1.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// binary is the program for one architecture, in Go's and OCI's common spelling.
type binary struct {
	arch    string
	content []byte
}

// image is what goes into the archive.
type image struct {
	name, tag, revision string
	certificates        []byte
	binaries            []binary
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type index struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Manifests     []descriptor `json:"manifests"`
}

type manifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        descriptor   `json:"config"`
	Layers        []descriptor `json:"layers"`
}

type config struct {
	platform
	Config struct {
		Entrypoint []string          `json:"Entrypoint"`
		Labels     map[string]string `json:"Labels"`
	} `json:"config"`
	RootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
}

// write writes the archive.
func (i image) write(w io.Writer) error {
	files := map[string][]byte{"oci-layout": []byte(`{"imageLayoutVersion":"1.0.0"}`)}
	blob := func(mediaType string, content []byte) descriptor {
		sum := digest(content)
		files["blobs/sha256/"+sum] = content
		return descriptor{MediaType: mediaType, Digest: "sha256:" + sum, Size: len(content)}
	}
	document := func(mediaType string, v any) (descriptor, error) {
		content, err := json.Marshal(v) // sorts the keys of maps
		return blob(mediaType, content), err
	}

	images := index{SchemaVersion: 2, MediaType: typeIndex}
	for _, b := range i.binaries {
		layer, err := tarball(map[string][]byte{"pod2role": b.content, "etc/ssl/certs/ca-certificates.crt": i.certificates}, "pod2role")
		if err != nil {
			return err
		}
		compressed, err := gzipped(layer)
		if err != nil {
			return err
		}
		c := config{platform: platform{Architecture: b.arch, OS: "linux"}}
		c.Config.Entrypoint = []string{"/pod2role"}
		c.Config.Labels = i.labels()
		c.RootFS.Type, c.RootFS.DiffIDs = "layers", []string{"sha256:" + digest(layer)}
		described, err := document(typeConfig, c)
		if err != nil {
			return err
		}
		m, err := document(typeManifest, manifest{
			SchemaVersion: 2, MediaType: typeManifest, Config: described, Layers: []descriptor{blob(typeLayer, compressed)},
		})
		if err != nil {
			return err
		}
		m.Platform = &c.platform
		images.Manifests = append(images.Manifests, m)
	}
	top, err := document(typeIndex, images)
	if err != nil {
		return err
	}
	top.Annotations = map[string]string{
		"io.containerd.image.name":          i.name,
		"org.opencontainers.image.ref.name": i.tag,
	}
	files["index.json"], err = json.Marshal(index{SchemaVersion: 2, MediaType: typeIndex, Manifests: []descriptor{top}})
	if err != nil {
		return err
	}
	archive, err := tarball(files)
	if err != nil {
		return err
	}
	_, err = w.Write(archive)
	return err
}

func (i image) labels() map[string]string {
	labels := map[string]string{
		"org.opencontainers.image.title":       "pod2role",
		"org.opencontainers.image.description": "Gives every pod on a Kubernetes node the credentials of its own IAM role",
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.version":     i.tag,
	}
	if i.revision != "" {
		labels["org.opencontainers.image.revision"] = i.revision
	}
	return labels
}

// tarball packs files, and the folders they are in, in the order of their names; those named executable can be run.
func tarball(files map[string][]byte, executable ...string) ([]byte, error) {
	names := map[string]bool{} // :: name -> is a folder
	for name := range files {
		names[name] = false
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			names[dir] = true
		}
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		h := tar.Header{Format: tar.FormatUSTAR, Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(files[name]))}
		if names[name] {
			h.Name, h.Typeflag, h.Mode = name+"/", tar.TypeDir, 0o755
		} else if slices.Contains(executable, name) {
			h.Mode = 0o755
		}
		if err := w.WriteHeader(&h); err != nil {
			return nil, err
		}
		if _, err := w.Write(files[name]); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func gzipped(content []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
