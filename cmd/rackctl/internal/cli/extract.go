// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/rackbus/rackbus/pkg/firmware"
)

func newExtract(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "extract-vme FILE",
		Short: "Write the CPLD image of a switch package to a .vme file",
		Long: `Write the CPLD image of a switch's firmware package to a .vme file, the form in
which the switch takes it, and print the file's name. An existing file is not
replaced.

` + exitHelp,
		Args: cobra.ExactArgs(1), ValidArgsFunction: files,
	}
	dir := cmd.Flags().StringP("dir", "d", ".", "folder to write to")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		f, size, err := openFile(args[0])
		if err != nil {
			return failed(err)
		}
		defer f.Close()
		tmp, err := os.CreateTemp(*dir, "rackctl-*.vme")
		if err != nil {
			return failed(err)
		}
		defer os.Remove(tmp.Name())
		vme, err := firmware.ExtractVME(cmd.Context(), f, size, tmp)
		if err = errors.Join(err, tmp.Close()); err != nil {
			return failed(fmt.Errorf("%s: %w", args[0], err))
		}
		path := filepath.Join(*dir, vme.FileName)
		// A link fails where a rename would replace.
		if err := os.Link(tmp.Name(), path); err != nil {
			return failed(err)
		}
		fmt.Fprintln(env.Stdout, path)
		return nil
	}
	return cmd
}
