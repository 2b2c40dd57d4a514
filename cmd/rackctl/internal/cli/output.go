// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// Forms of output.
const (
	formTable = "table"
	formText  = "text"
	formJSON  = "json"
	formYAML  = "yaml"
)

// output is the flag -o.
type output struct {
	form  string
	forms []string
}

func addOutput(cmd *cobra.Command, forms ...string) *output {
	o := &output{forms: forms}
	cmd.Flags().StringVarP(&o.form, "output", "o", forms[0], "form of the output: "+strings.Join(forms, ", "))
	complete(cmd, "output", forms)
	return o
}

func (o *output) check() error {
	if !slices.Contains(o.forms, o.form) {
		return usagef("unknown form of output %q; there are %s", o.form, strings.Join(o.forms, ", "))
	}
	return nil
}

// write writes v in a form for programs.
func (o *output) write(w io.Writer, v any) error {
	raw, err := json.MarshalIndent(v, "", "  ")
	if err == nil && o.form == formYAML {
		raw, err = yaml.JSONToYAML(raw)
	}
	if err != nil {
		return failed(fmt.Errorf("encode the output: %w", err))
	}
	if _, err := fmt.Fprintln(w, strings.TrimRight(string(raw), "\n")); err != nil {
		return failed(fmt.Errorf("write the output: %w", err))
	}
	return nil
}

// complete offers the values of a flag to the shell.
func complete(cmd *cobra.Command, flag string, values []string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // the flag was defined one line before
	}
}

// files makes the shell complete file names.
func files(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}
