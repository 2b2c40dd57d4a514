// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"
)

// Forms of output.
const (
	formTable = "table"
	formWide  = "wide"
	formText  = "text"
	formJSON  = "json"
	formYAML  = "yaml"
)

// output is the flag -o.
type output struct {
	form  string
	forms []string
	// given says that the form was asked for.
	given func() bool
}

func addOutput(cmd *cobra.Command, forms ...string) *output {
	o := &output{forms: forms, given: func() bool { return cmd.Flags().Changed("output") }}
	cmd.Flags().StringVarP(&o.form, "output", "o", forms[0], "`FORM` of the output: "+strings.Join(forms, ", "))
	complete(cmd, "output", forms)
	return o
}

// answers is the flag -o of commands that show what a server says.
func answers(cmd *cobra.Command) *output {
	return addOutput(cmd, allForms()...)
}

func (o *output) check() error {
	if !slices.Contains(o.forms, o.form) {
		return usagef("unknown form of output %q; there are %s", o.form, strings.Join(o.forms, ", "))
	}
	return nil
}

// settle takes the form of the environment or the context when none was asked for.
func (o *output) settle(p *program) error {
	if !o.given() {
		t, err := p.contextTarget()
		if err != nil {
			return err
		}
		if env := p.env.Getenv(envOutput); env != "" {
			t.Output = env
		}
		if t.Output != "" && !slices.Contains(allForms(), t.Output) {
			return usagef("unknown form of output %q in %s or in the context; there are %s", t.Output, envOutput, strings.Join(allForms(), ", "))
		}
		if slices.Contains(o.forms, t.Output) {
			o.form = t.Output // a command without that form keeps its own
		}
	}
	return o.check()
}

// allForms are those that a context may name.
func allForms() []string { return []string{formTable, formWide, formJSON, formYAML} }

// data says that the output is for programs.
func (o *output) data() bool { return o.form == formJSON || o.form == formYAML }

// write writes v in a form for programs.
func (o *output) write(w io.Writer, v any) error {
	raw, err := encode(v)
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

// encode makes JSON. Messages have the field names of the .proto files, and every
// scalar and list of theirs, so that scripts need not ask what is there.
func encode(v any) ([]byte, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return json.MarshalIndent(v, "", "  ")
	}
	raw, err := protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}.Marshal(m)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer // protojson varies its white space on purpose
	err = json.Indent(&out, raw, "", "  ")
	return out.Bytes(), err
}

// show writes an answer: v for programs, the table for people.
func (o *output) show(env *Env, v any, t *table) error {
	if o.data() {
		return o.write(env.Stdout, v)
	}
	t.write(env, o.form == formWide)
	return nil
}

// complete offers the values of a flag to the shell.
func complete(cmd *cobra.Command, flag string, values []string) {
	register(cmd, flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// register sets how the values of a flag are completed.
func register(cmd *cobra.Command, flag string, f cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, f); err != nil {
		panic(err) // the flag was defined one line before
	}
}

// files makes the shell complete file names.
func files(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}
