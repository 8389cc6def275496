package cli

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"pod2role/config"
)

// docsCommand writes the parts of the documentation that are made from the code.
func docsCommand(s streams) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:    "docs",
		Short:  "Print the documentation that is made from the code",
		Hidden: true,
		Args:   usageArgs(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			if dir == "" {
				_, err := fmt.Fprint(s.out, config.Markdown())
				return err
			}
			return os.WriteFile(filepath.Join(dir, "configuration.md"), []byte(config.Markdown()), 0o644)
		},
	}
	cmd.Flags().StringVar(&dir, "write", "", "write the pages into this directory instead")
	cmd.Flags().Lookup("write").NoOptDefVal = "docs"
	return cmd
}
