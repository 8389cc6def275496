// Command image packs static binaries as an OCI image archive, without a container engine.
//
//	image -name pod2role:v1 -ca ca-certificates.crt -o pod2role.tar amd64=BINARY arm64=BINARY
//
// The archive is an OCI image layout: skopeo, crane and `ctr images import` take it. It holds one image for each
// architecture and an index over them. The same input makes the same bytes, wherever and whenever: files carry no
// time, no owner and no order but that of their names.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

func main() { os.Exit(run(os.Args[1:], os.Stderr)) }

func run(args []string, errs io.Writer) int {
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.SetOutput(errs)
	name := flags.String("name", "", "the image's name and tag")
	ca := flags.String("ca", "/etc/ssl/certs/ca-certificates.crt", "the CA certificates to put into the image")
	revision := flags.String("revision", "", "the commit that the binaries were built from")
	out := flags.String("o", "", "the archive to write")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if err := pack(*name, *revision, *ca, *out, flags.Args()); err != nil {
		fmt.Fprintf(errs, "image: %v\n", err)
		return 1
	}
	return 0
}

// pack reads the files, and writes the archive under its name only when it is whole.
func pack(name, revision, ca, out string, binaries []string) error {
	certificates, err := os.ReadFile(ca)
	if err != nil {
		return fmt.Errorf("reading the CA certificates, without which no call to AWS can be trusted: %w", err)
	}
	if !strings.Contains(string(certificates), "-----BEGIN CERTIFICATE-----") {
		return fmt.Errorf("%q holds no CA certificates", ca)
	}
	base := name[strings.LastIndex(name, "/")+1:] // a registry may have a port
	repository, tag, ok := strings.Cut(base, ":")
	if !ok || repository == "" || tag == "" || out == "" || len(binaries) == 0 {
		return fmt.Errorf("-name NAME:TAG, -o FILE and at least one ARCHITECTURE=BINARY are needed")
	}
	i := image{name: name, tag: tag, revision: revision, certificates: certificates}
	for _, b := range binaries {
		arch, file, ok := strings.Cut(b, "=")
		if !ok {
			return fmt.Errorf("%q is not ARCHITECTURE=BINARY", b)
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("reading the binary for %s: %w", arch, err)
		}
		i.binaries = append(i.binaries, binary{arch: arch, content: content})
	}

	partial := out + ".partial"
	f, err := os.Create(partial)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(partial) }() // gone already if all went well
	if err := i.write(f); err != nil {
		_ = f.Close()
		return fmt.Errorf("writing %q: %w", out, err)
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(partial, out)
}
