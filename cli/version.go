package cli

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// linkedVersion is set by the linker for a release: -X pod2role/cli.linkedVersion=v1.2.3.
var linkedVersion string //nolint:gochecknoglobals // the linker can only set a package-level variable

// version is the release, or else what Go's build information says of the source.
func version() string {
	if linkedVersion != "" {
		return linkedVersion
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	revision, modified := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = "-modified"
		}
	}
	if revision == "" {
		return info.Main.Version
	}
	return revision + modified
}

func versionCommand(s streams) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  usageArgs(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(s.out, "pod2role", version())
			return err
		},
	}
}
