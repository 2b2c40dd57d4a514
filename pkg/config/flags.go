// SPDX-License-Identifier: Apache-2.0

package config

import (
	"flag"
	"os"
)

// Flags are the command line flags every process has.
type Flags struct {
	Path        string
	PrintConfig bool
	Version     bool

	insecure bool
	set      []string
}

// Bind adds the flags to a flag set.
func (f *Flags) Bind(flags *flag.FlagSet) {
	flags.StringVar(&f.Path, "config", "", "configuration file (default "+DefaultPath+")")
	flags.BoolVar(&f.PrintConfig, "print-config", false, "print the effective configuration, secrets masked, and exit")
	flags.BoolVar(&f.Version, "version", false, "print the version and exit")
	flags.BoolVar(&f.insecure, "insecure", false, "same as --set tls.insecure=true; also needs "+envInsecure+"=1")
	flags.Func("set", "replace one value: `key=value` with a dotted key; may be repeated", func(pair string) error {
		f.set = append(f.set, pair)
		return nil
	})
}

// Options returns the options for Load in this process's environment.
func (f *Flags) Options(process Process) Options {
	set := f.set
	if f.insecure {
		set = append([]string{"tls.insecure=true"}, set...)
	}
	return Options{Process: process, Path: f.Path, Environ: os.Environ(), Set: set}
}
