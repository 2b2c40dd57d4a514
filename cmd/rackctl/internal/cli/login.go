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

// Variables that may hold passwords.
const (
	envPassword     = "RACKCTL_BMC_PASSWORD"  //nolint:gosec // the name, not the password
	envHostPassword = "RACKCTL_HOST_PASSWORD" //nolint:gosec // the name, not the password
)

// maxPassword bounds a password file, in bytes.
const maxPassword = 4096

// loginFlags are the flags by which a command logs in to one side of a device.
type loginFlags struct {
	user string
	file string
	// prefix is that of the flags, env the variable that may hold the password.
	prefix, env string
	// prompt asks for the password; without it it names user and of.
	prompt, of string
	// twice asks for it a second time: nobody knows yet whether it is as meant.
	twice bool
}

// add defines the flags. The prefix of their names is empty, or ends with a dash.
func (l *loginFlags) add(cmd *cobra.Command, prefix, env, of string) {
	l.prefix, l.env, l.of = prefix, env, of
	flags := cmd.Flags()
	flags.StringVar(&l.user, prefix+"user", "root", "`USER` of "+of)
	flags.StringVar(&l.file, prefix+"password-file", "", "`FILE` with the password of "+of+" in its first line; - is standard input")
	// Known only to be refused with a hint.
	flags.String(prefix+"password", "", "")
	if err := flags.MarkHidden(prefix + "password"); err != nil {
		panic(err) // it was defined one line before
	}
}

// read gets the password from where it is least seen.
func (l *loginFlags) read(env *Env, cmd *cobra.Command) (node.Credentials, error) {
	none := node.Credentials{}
	if cmd.Flags().Changed(l.prefix + "password") {
		return none, usagef("a password on the command line can be read by everybody on this machine; "+
			"use --%spassword-file, the environment variable %s or the prompt, and change the one you gave", l.prefix, l.env)
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

// optional is the password of the file or the variable, "" when there is neither.
func (l *loginFlags) optional(env *Env, cmd *cobra.Command) (string, error) {
	if cmd.Flags().Changed(l.prefix + "password") {
		_, err := l.read(env, cmd)
		return "", err
	}
	if l.file == "" && env.Getenv(l.env) == "" {
		return "", nil
	}
	p, err := l.password(env)
	return string(p), err
}

func (l *loginFlags) password(env *Env) ([]byte, error) {
	switch {
	case l.file == "-":
		return l.firstLine(env.Stdin)
	case l.file != "":
		f, err := os.Open(l.file)
		if err != nil {
			return nil, usagef("--%spassword-file: %w", l.prefix, err)
		}
		defer f.Close()
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 {
			fmt.Fprintf(env.Stderr, "rackctl: others can read %s, its mode is %#o\n", l.file, info.Mode().Perm())
		}
		return l.firstLine(f)
	}
	if p := env.Getenv(l.env); p != "" {
		return []byte(p), nil
	}
	if env.Ask == nil {
		return nil, usagef("no password: give --%spassword-file or set %s", l.prefix, l.env)
	}
	prompt := l.prompt
	if prompt == "" {
		prompt = fmt.Sprintf("Password of %s at %s: ", l.user, l.of)
	}
	p, err := ask(env, prompt)
	if err != nil || !l.twice {
		return p, err
	}
	again, err := ask(env, "Once more: ")
	if err == nil && !bytes.Equal(p, again) {
		err = usagef("the two passwords differ")
	}
	return p, err
}

func ask(env *Env, prompt string) ([]byte, error) {
	p, err := env.Ask(prompt)
	switch {
	case errors.Is(err, errInterrupted):
		return nil, &exitError{ExitInterrupted, errors.New("nothing was done")}
	case err != nil:
		return nil, usagef("password not read: %w", err)
	}
	return p, nil
}

func (l *loginFlags) firstLine(r io.Reader) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(r, maxPassword+1))
	if err != nil {
		return nil, usagef("--%spassword-file: %w", l.prefix, err)
	}
	if len(raw) > maxPassword {
		return nil, &exitError{ExitUsage, fmt.Errorf("--%spassword-file: that is no password, it is too long", l.prefix)}
	}
	line, _, _ := bytes.Cut(raw, []byte("\n"))
	return bytes.TrimSuffix(line, []byte("\r")), nil
}
