// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

func newContext(p *program) *cobra.Command {
	cmd := group("context", "Keep the servers that rackctl talks to",
		newContextList(p), newContextUse(p), newContextSet(p), newContextShow(p), newContextDelete(p))
	cmd.Long = `Keep the servers that rackctl talks to: address, certificates and form of output,
each under a name, in ~/.config/rackctl/config.yaml (--config, ` + envConfig + `).
Paths in it are relative to its folder. It holds no secrets, but nobody else may
be able to change it, and the private keys must be readable by their owner only.

` + exitHelp
	return cmd
}

func newContextList(p *program) *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List the contexts", Args: cobra.NoArgs}
	out := answers(cmd)
	return p.tells(cmd, out, func([]string) error {
		config, err := p.loadConfig()
		if err != nil {
			return err
		}
		t := &table{columns: columns("", "NAME", "ADDRESS", "+CA", "+CERT", "OUTPUT"), empty: "There is no context."}
		for _, name := range config.names() {
			c, mark := config.Contexts[name], " "
			if name == config.Current {
				mark = "*"
			}
			t.add(field{mark, bold}, name, c.Address, c.CA, c.Cert, c.Output)
		}
		return out.show(p.env, config, t)
	})
}

// contextArg is a command that takes the name of a context.
func contextArg(p *program, use, short string, run func(name string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.ExactArgs(1), ValidArgsFunction: p.completeContexts,
		RunE: func(_ *cobra.Command, args []string) error { return run(args[0]) },
	}
}

func newContextUse(p *program) *cobra.Command {
	return contextArg(p, "use NAME", "Make a context the current one", func(name string) error {
		return p.editConfig(func(config *configFile) error {
			if err := config.require(name); err != nil {
				return err
			}
			config.Current = name
			return nil
		})
	})
}

func newContextDelete(p *program) *cobra.Command {
	return contextArg(p, "delete NAME", "Forget a context", func(name string) error {
		return p.editConfig(func(config *configFile) error {
			if err := config.require(name); err != nil {
				return err
			}
			delete(config.Contexts, name)
			if config.Current == name {
				config.Current = ""
			}
			return nil
		})
	})
}

func (c *configFile) require(name string) error {
	if _, known := c.Contexts[name]; !known {
		return c.unknown(name)
	}
	return nil
}

func newContextShow(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "show", Short: "Show which server would be asked, and how", Args: cobra.NoArgs,
		Long: "Show which server would be asked, and how, when flags and environment are laid\nover the context.",
	}
	out := answers(cmd)
	return p.tells(cmd, out, func([]string) error {
		t, err := p.target()
		if err != nil {
			return err
		}
		tab := &table{columns: columns("SETTING", "VALUE")}
		for _, row := range [][2]string{
			{"context", t.context}, {"address", t.Address}, {"ca", t.CA}, {"cert", t.Cert}, {"key", t.Key},
			{"server_name", t.ServerName}, {"insecure", okWord(t.Insecure)}, {"output", t.Output},
		} {
			tab.add(row[0], row[1])
		}
		return out.show(p.env, t, tab)
	})
}

func newContextSet(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "set NAME", Short: "Make or change a context",
		Long: `Make or change a context from the flags --address, --tls-ca, --tls-cert, --tls-key,
--tls-server-name, --insecure and --default-output; what is not given stays. The
first context becomes the current one.`,
		Example: `  rackctl context set lab --address rms.lab:8801 --tls-ca ca.crt --tls-cert me.crt --tls-key me.key`,
		Args:    cobra.ExactArgs(1), ValidArgsFunction: p.completeContexts,
	}
	use := cmd.Flags().Bool("use", false, "make it the current one")
	form := cmd.Flags().String("default-output", "", "form of output without -o: table, wide, json or yaml")
	complete(cmd, "default-output", allForms())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if strings.TrimSpace(args[0]) == "" {
			return usagef("a context needs a name")
		}
		given := p.conn.given
		given.Output = *form
		if *form != "" && !slices.Contains(allForms(), *form) {
			return usagef("--default-output %q is none of %s", *form, strings.Join(allForms(), ", "))
		}
		for _, file := range []*string{&given.CA, &given.Cert, &given.Key} {
			if *file == "" {
				continue
			}
			path, err := filepath.Abs(*file)
			if err != nil {
				return usagef("%s: %w", *file, err)
			}
			*file = path
		}
		return p.editConfig(func(config *configFile) error {
			t := config.Contexts[args[0]]
			t.over(given)
			if cmd.Flags().Changed("insecure") {
				t.Insecure = given.Insecure
			}
			if t.Address == "" {
				return usagef("the new context %q needs --address HOST[:PORT]", args[0])
			}
			if _, err := fullAddress(t.Address); err != nil {
				return err
			}
			if config.Contexts == nil {
				config.Contexts = make(map[string]target)
			}
			config.Contexts[args[0]] = t
			if *use || config.Current == "" {
				config.Current = args[0]
			}
			return nil
		})
	}
	return cmd
}

// editConfig changes the configuration and says where it is.
func (p *program) editConfig(edit func(*configFile) error) error {
	config, err := p.loadConfig()
	if errors.Is(err, fs.ErrNotExist) {
		config, err = &configFile{}, nil // the file that --config names is about to be made
	}
	if err != nil {
		return err
	}
	if err := edit(config); err != nil {
		return err
	}
	path, err := p.saveConfig(config)
	if err == nil {
		fmt.Fprintf(p.env.Stderr, "rackctl: %s written, current context: %s\n", path, cell(config.Current))
	}
	return err
}
