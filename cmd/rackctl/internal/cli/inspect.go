// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/rackbus/rackbus/pkg/firmware"
)

func newInspect(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "inspect FILE",
		Short: "Show what a firmware file carries",
		Long: `Show what a firmware file carries: the device records, components and nested
packages of a PLDM firmware package (DSP0267, revisions 1 to 4), or the manifest
and files of a power shelf's tar archive. Images are read once for their digests
and, in revision 4, for the checksum of the payload.

Exit codes: 0 the file is whole, 1 it is damaged or cannot be read, 2 usage,
3 it is neither a package nor an archive.`,
		Example: `  rackctl firmware inspect nvfw_GB200-P4975_0004.fwpkg
  rackctl firmware inspect -o json --headers bundle.fwpkg | jq '.packages[].version'`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: files,
	}
	out := addOutput(cmd, formTable, formJSON, formYAML)
	headers := cmd.Flags().Bool("headers", false, "read headers only: no digests, no checksum of the payload")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := out.check(); err != nil {
			return err
		}
		view, err := inspect(cmd.Context(), args[0], *headers)
		if view == nil {
			return failed(err)
		}
		if out.form == formTable {
			view.table(env.Stdout)
		} else if werr := out.write(env.Stdout, view); werr != nil {
			return werr
		}
		switch {
		case err != nil:
			return failed(err)
		case view.Format == firmware.FormatRaw:
			return &exitError{ExitUnknown, fmt.Errorf("%s is neither a firmware package nor an archive", args[0])}
		default:
			return nil
		}
	}
	return cmd
}

// inspect reads a file. With a damage that leaves the headers readable it gives
// both the view and the error.
func inspect(ctx context.Context, path string, headers bool) (*fileView, error) {
	f, size, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	view := &fileView{File: path, Size: size}
	if view.Format, err = firmware.FormatOf(f); err != nil {
		return nil, err
	}
	in := &inspector{ctx: ctx, r: f, size: size, headers: headers}
	if view.SHA256, err = in.digest(firmware.Section{Size: size}); err != nil {
		return nil, err
	}
	switch view.Format {
	case firmware.FormatPLDM:
		view.Packages, err = in.packages()
		if view.Packages == nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	case firmware.FormatTar:
		if view.Archive, err = in.archive(); view.Archive == nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	case firmware.FormatRaw:
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return view, err
}

// openFile opens a regular file.
func openFile(path string) (*os.File, int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", path)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}
