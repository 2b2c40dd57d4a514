// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// Variables that choose the server. They outrank the configuration file, and are
// outranked by flags.
const (
	envConfig     = "RACKCTL_CONFIG"
	envContext    = "RACKCTL_CONTEXT"
	envAddress    = "RACKCTL_ADDRESS"
	envCA         = "RACKCTL_CA"
	envCert       = "RACKCTL_CERT"
	envKey        = "RACKCTL_KEY"
	envServerName = "RACKCTL_SERVER_NAME"
	envOutput     = "RACKCTL_OUTPUT"
)

// defaultPort is where Rackbus serves gRPC.
const defaultPort = "8801"

// connFlags are the flags by which every command finds its server.
type connFlags struct {
	config, context string
	given           target
	timeout         time.Duration
}

func (f *connFlags) add(root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.StringVar(&f.config, "config", "", "`FILE` with the contexts; also "+envConfig+", default ~/.config/rackctl/config.yaml")
	flags.StringVar(&f.context, "context", "", "`NAME` of the context to use; also "+envContext)
	flags.StringVar(&f.given.Address, "address", "", "`HOST[:PORT]` of the server; also "+envAddress)
	flags.StringVar(&f.given.CA, "tls-ca", "", "`FILE` with the CA that the server's certificate comes from; also "+envCA)
	flags.StringVar(&f.given.Cert, "tls-cert", "", "`FILE` with the own certificate; also "+envCert)
	flags.StringVar(&f.given.Key, "tls-key", "", "`FILE` with its private key; also "+envKey)
	flags.StringVar(&f.given.ServerName, "tls-server-name", "", "`NAME` that the server's certificate has to be for; also "+envServerName)
	flags.BoolVar(&f.given.Insecure, "insecure", false, "plaintext, for tests only; needs "+envAllowInsecure+"=1 in the environment too")
	flags.DurationVar(&f.timeout, "timeout", 0, "how long one call may take (default 5m, 30m for calls that work on a device)")
}

// target is how a server is reached.
type target struct {
	Address    string `json:"address,omitempty"`
	CA         string `json:"ca,omitempty"`
	Cert       string `json:"cert,omitempty"`
	Key        string `json:"key,omitempty"`
	ServerName string `json:"server_name,omitempty"`
	Insecure   bool   `json:"insecure,omitempty"`
	// Output is the form of output where a command has it and -o is not given.
	Output string `json:"output,omitempty"`

	// context is where it comes from; empty without one.
	context string
}

func (t *target) origin() string {
	if t.context == "" {
		return ""
	}
	return fmt.Sprintf(" (context %s)", t.context)
}

// over lays what is set in other over t.
func (t *target) over(other target) {
	for dst, src := range map[*string]string{
		&t.Address: other.Address, &t.CA: other.CA, &t.Cert: other.Cert, &t.Key: other.Key,
		&t.ServerName: other.ServerName, &t.Output: other.Output,
	} {
		if src != "" {
			*dst = src
		}
	}
	t.Insecure = t.Insecure || other.Insecure
}

// configFile is what rackctl keeps.
type configFile struct {
	Current  string            `json:"current,omitempty"`
	Contexts map[string]target `json:"contexts,omitempty"`
}

func (c *configFile) names() []string { return slices.Sorted(maps.Keys(c.Contexts)) }

// unknown is the error about a context that is not there.
func (c *configFile) unknown(name string) error {
	if len(c.Contexts) == 0 {
		return usagef("there is no context %q, nor any other: make one with 'rackctl context set %s --address HOST:PORT ...'", name, name)
	}
	return usagef("there is no context %q; there are: %s", name, strings.Join(c.names(), ", "))
}

// configPath is the file that the flags, the environment or the custom name.
// named says that somebody has asked for it.
func (p *program) configPath() (path string, named bool) {
	if p.conn.config != "" {
		return p.conn.config, true
	}
	if path := p.env.Getenv(envConfig); path != "" {
		return path, true
	}
	dir := p.env.Getenv("XDG_CONFIG_HOME")
	if dir == "" {
		home := p.env.Getenv("HOME")
		if home == "" {
			return "", false
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "rackctl", "config.yaml"), false
}

// loadConfig reads the configuration. There need be none, unless it is asked for by name.
func (p *program) loadConfig() (*configFile, error) {
	config := &configFile{}
	path, named := p.configPath()
	if path == "" {
		return config, nil
	}
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return config, nil
	}
	if err != nil {
		return nil, usagef("configuration: %w", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, usagef("configuration: %w", err)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return nil, usagef("others can change %s (mode %#o), and with it where passwords are sent; chmod 600 %s", path, info.Mode().Perm(), path)
	}
	if err := yaml.UnmarshalStrict(raw, config); err != nil {
		return nil, usagef("configuration %s: %w", path, err)
	}
	return config, nil
}

// saveConfig writes the configuration in one step.
func (p *program) saveConfig(config *configFile) (string, error) {
	path, _ := p.configPath()
	if path == "" {
		return "", usagef("no place for the configuration: give --config or set HOME")
	}
	raw, err := yaml.Marshal(config)
	if err != nil {
		return "", failed(fmt.Errorf("configuration: %w", err))
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", failed(fmt.Errorf("configuration: %w", err))
	}
	return path, replaceFile(path, raw)
}

// replaceFile puts content into a file that only its owner can read.
func replaceFile(path string, content []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".rackctl-*") // mode 0600
	if err != nil {
		return failed(err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(content)
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return failed(err)
	}
	return nil
}

// contextTarget is the context in use, empty when there is none.
func (p *program) contextTarget() (target, error) {
	config, err := p.loadConfig()
	if err != nil {
		return target{}, err
	}
	name := config.Current
	if env := p.env.Getenv(envContext); env != "" {
		name = env
	}
	if p.conn.context != "" {
		name = p.conn.context
	}
	if name == "" {
		return target{}, nil
	}
	t, known := config.Contexts[name]
	if !known {
		return target{}, config.unknown(name)
	}
	path, _ := p.configPath()
	for _, file := range []*string{&t.CA, &t.Cert, &t.Key} {
		if *file != "" && !filepath.IsAbs(*file) {
			*file = filepath.Join(filepath.Dir(path), *file)
		}
	}
	t.context = name
	return t, nil
}

// target is the server to ask.
func (p *program) target() (target, error) {
	t, err := p.contextTarget()
	if err != nil {
		return t, err
	}
	getenv := p.env.Getenv
	t.over(target{
		Address: getenv(envAddress), CA: getenv(envCA), Cert: getenv(envCert), Key: getenv(envKey), ServerName: getenv(envServerName),
	})
	t.over(p.conn.given)
	if t.Address == "" {
		return t, usagef("no server: give --address, set %s, or make a context with 'rackctl context set NAME --address HOST:PORT ...'", envAddress)
	}
	if t.Address, err = fullAddress(t.Address); err != nil {
		return t, err
	}
	return t, nil
}

// fullAddress is HOST:PORT of what people write for a server.
func fullAddress(text string) (string, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = strings.Trim(text, "[]"), defaultPort
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || host == "" || strings.ContainsAny(host, "/ \t[]") || strings.Contains(host, ":") && net.ParseIP(host) == nil {
		return "", usagef("the address %q is not HOST or HOST:PORT, for example rms.lab:%s", text, defaultPort)
	}
	return net.JoinHostPort(host, port), nil
}

// checkPrivate refuses a file that others can read.
func checkPrivate(path, what string) error {
	info, err := os.Stat(path)
	if err != nil {
		return usagef("%s: %w", what, err)
	}
	if info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 {
		return usagef("others can read %s %s (mode %#o); chmod 600 %s", what, path, info.Mode().Perm(), path)
	}
	return nil
}
