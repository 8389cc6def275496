package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const certificate = "-----BEGIN CERTIFICATE-----\n"

func packed(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"ca": certificate, "amd64": "for amd64", "arm64": "for arm64"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(dir, "out.tar")
	args := []string{
		"-name", "registry.example:5000/pod2role:v1", "-revision", "abc", "-ca", filepath.Join(dir, "ca"), "-o", out,
		"amd64=" + filepath.Join(dir, "amd64"), "arm64=" + filepath.Join(dir, "arm64"),
	}
	var errs bytes.Buffer
	if code := run(args, &errs); code != 0 {
		t.Fatalf("exit status %d: %s", code, &errs)
	}
	archive, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return archive
}

// untar returns the files of an archive and its names in order.
func untar(t *testing.T, archive io.Reader) (map[string]string, []string) {
	t.Helper()
	files, names := map[string]string{}, []string{}
	for r := tar.NewReader(archive); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, names
		} else if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(time.Unix(0, 0)) || h.Uid != 0 || h.Gid != 0 {
			t.Errorf("%s: modified %v by %d:%d, want a fixed time and root", h.Name, h.ModTime, h.Uid, h.Gid)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(content)
		names = append(names, h.Name)
	}
}

func TestTheSameInputMakesTheSameArchive(t *testing.T) {
	if !bytes.Equal(packed(t), packed(t)) {
		t.Error("two archives of the same files differ")
	}
}

func TestEachArchitectureHasItsBinaryAndTheCertificates(t *testing.T) {
	files, _ := untar(t, bytes.NewReader(packed(t)))
	follow := func(d descriptor, into any) {
		t.Helper()
		content, ok := files["blobs/"+strings.Replace(d.Digest, ":", "/", 1)]
		if !ok || len(content) != d.Size || "sha256:"+digest([]byte(content)) != d.Digest {
			t.Fatalf("%s %s is missing or is not what its digest says", d.MediaType, d.Digest)
		}
		if into != nil {
			if err := json.Unmarshal([]byte(content), into); err != nil {
				t.Fatal(err)
			}
		}
	}
	var top, images index
	if err := json.Unmarshal([]byte(files["index.json"]), &top); err != nil {
		t.Fatal(err)
	}
	if got := top.Manifests[0].Annotations["io.containerd.image.name"]; got != "registry.example:5000/pod2role:v1" {
		t.Errorf("the archive's image is named %q", got)
	}
	if got := top.Manifests[0].Annotations["org.opencontainers.image.ref.name"]; got != "v1" {
		t.Errorf("the archive's image has the tag %q", got)
	}
	follow(top.Manifests[0], &images)
	for n, arch := range []string{"amd64", "arm64"} {
		var m manifest
		follow(images.Manifests[n], &m)
		var c config
		follow(m.Config, &c)
		if c.Architecture != arch || images.Manifests[n].Platform.Architecture != arch {
			t.Errorf("image %d is for %s, want %s", n, c.Architecture, arch)
		}
		if !slices.Equal(c.Config.Entrypoint, []string{"/pod2role"}) || c.Config.Labels["org.opencontainers.image.revision"] != "abc" {
			t.Errorf("the configuration is %+v", c.Config)
		}
		follow(m.Layers[0], nil)
		r, err := gzip.NewReader(strings.NewReader(files["blobs/"+strings.Replace(m.Layers[0].Digest, ":", "/", 1)]))
		if err != nil {
			t.Fatal(err)
		}
		layer, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if got := "sha256:" + digest(layer); got != c.RootFS.DiffIDs[0] {
			t.Errorf("the layer is %s, and the configuration says %s", got, c.RootFS.DiffIDs[0])
		}
		inside, names := untar(t, bytes.NewReader(layer))
		if want := []string{"etc/", "etc/ssl/", "etc/ssl/certs/", "etc/ssl/certs/ca-certificates.crt", "pod2role"}; !slices.Equal(names, want) {
			t.Errorf("the layer holds %q, want %q", names, want)
		}
		if inside["pod2role"] != "for "+arch || inside["etc/ssl/certs/ca-certificates.crt"] != certificate {
			t.Errorf("the layer for %s holds the wrong files", arch)
		}
	}
}

func TestAnImageNeedsATag(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte(certificate), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "pod2role", "pod2role:", ":v1", "registry.example:5000/pod2role"} {
		var errs bytes.Buffer
		if code := run([]string{"-name", name, "-ca", file, "-o", file + ".tar", "amd64=" + file}, &errs); code != 1 {
			t.Errorf("%q: exit status %d, want 1", name, code)
		}
	}
}

func TestAnImageWithoutCertificatesIsRefused(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "ca")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, ca := range []string{empty, empty + ".missing"} {
		var errs bytes.Buffer
		if code := run([]string{"-name", "a:b", "-ca", ca, "-o", empty + ".tar", "amd64=" + empty}, &errs); code != 1 {
			t.Errorf("exit status %d: %s", code, &errs)
		}
	}
}
