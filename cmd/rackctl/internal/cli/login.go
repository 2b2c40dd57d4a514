// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/secret"
)

// envPassword may hold the password of a management controller.
const envPassword = "RACKCTL_BMC_PASSWORD" //nolint:gosec // the name, not the password

// maxPassword bounds a password file, in bytes.
const maxPassword = 4096

// loginFlags are the flags by which a command logs in to a device.
type loginFlags struct {
	user string
	file string
}

func (l *loginFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&l.user, "user", "root", "`USER` of the management controller")
	flags.StringVar(&l.file, "password-file", "", "`FILE` with the password in its first line; - is standard input")
	// Known only to be refused with a hint.
	flags.String("password", "", "")
	if err := flags.MarkHidden("password"); err != nil {
		panic(err) // it was defined one line before
	}
}

// read gets the password from where it is least seen.
func (l *loginFlags) read(env *Env, cmd *cobra.Command) (node.Credentials, error) {
	none := node.Credentials{}
	if cmd.Flags().Changed("password") {
		return none, usagef("a password on the command line can be read by everybody on this machine; "+
			"use --password-file, the environment variable %s or the prompt, and change the one you gave", envPassword)
	}
	password, err := l.password(env)
	if err != nil {
		return none, err
	}
	if len(password) == 0 || l.user == "" {
		return none, usagef("user or password is empty")
	}
	return node.Credentials{User: l.user, Password: secret.FromBytes(password)}, nil
}

func (l *loginFlags) password(env *Env) ([]byte, error) {
	switch {
	case l.file == "-":
		return firstLine(env.Stdin)
	case l.file != "":
		f, err := os.Open(l.file)
		if err != nil {
			return nil, usagef("--password-file: %w", err)
		}
		defer f.Close()
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 {
			fmt.Fprintf(env.Stderr, "rackctl: others can read %s, its mode is %#o\n", l.file, info.Mode().Perm())
		}
		return firstLine(f)
	}
	if p := env.Getenv(envPassword); p != "" {
		return []byte(p), nil
	}
	if env.Ask == nil {
		return nil, usagef("no password: give --password-file or set %s", envPassword)
	}
	p, err := env.Ask(fmt.Sprintf("Password of %s: ", l.user))
	if err != nil {
		return nil, usagef("password not read: %w", err)
	}
	return p, nil
}

func firstLine(r io.Reader) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(r, maxPassword+1))
	if err != nil {
		return nil, usagef("--password-file: %w", err)
	}
	if len(raw) > maxPassword {
		return nil, &exitError{ExitUsage, errors.New("--password-file: that is no password, it is too long")}
	}
	line, _, _ := bytes.Cut(raw, []byte("\n"))
	return bytes.TrimSuffix(line, []byte("\r")), nil
}
