// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/knadh/koanf/parsers/toml/v2"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/v2"
)

const (
	envPrefix = "RACKBUS_"
	// envInsecure must be "1" for a plaintext listener. It is no key of the file,
	// so that a copied file alone cannot turn encryption off.
	envInsecure = "RACKBUS_ALLOW_INSECURE"
)

// ErrNotFound says that the configuration file does not exist.
var ErrNotFound = errors.New("configuration file not found")

// Process is the kind of process that loads the configuration; some rules
// concern only some of them.
type Process string

// The processes.
const (
	ProcessAPI             Process = "api"
	ProcessJobs            Process = "jobs"
	ProcessComputeAgent    Process = "compute-agent"
	ProcessPowerShelfAgent Process = "powershelf-agent"
	ProcessSwitchAgent     Process = "switch-agent"
	ProcessStandalone      Process = "standalone"
)

func (p Process) servesGRPC() bool     { return p == ProcessAPI || p == ProcessStandalone }
func (p Process) drivesSwitches() bool { return p == ProcessSwitchAgent || p == ProcessStandalone }

// Options say where the configuration comes from.
type Options struct {
	Process Process
	// Path of the file; empty is DefaultPath.
	Path string
	// Optional accepts that DefaultPath does not exist when no Path is given.
	Optional bool
	// Environ holds "NAME=value" strings, usually os.Environ().
	Environ []string
	// Set holds "key=value" with a dotted key, usually from flags. Lists are
	// separated by commas.
	Set []string
	// Derive fills in values that follow from others, before all are checked; it
	// may be nil.
	Derive func(*Config)
}

// Load reads and validates the configuration. All faults are returned together
// as Faults.
func Load(opts Options) (*Config, error) {
	k := koanf.New(".")
	if err := loadFile(k, opts); err != nil {
		return nil, err
	}
	var faults Faults
	if err := k.Load(environment(opts.Environ), nil); err != nil {
		return nil, fmt.Errorf("read environment: %w", err)
	}
	overrides := make(map[string]any, len(opts.Set))
	for _, pair := range opts.Set {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			faults.add("--set", pair, "must be KEY=VALUE")
			continue
		}
		overrides[key] = typed(key, value)
	}
	if err := k.Load(confmap.Provider(overrides, "."), nil); err != nil {
		return nil, fmt.Errorf("read flags: %w", err)
	}
	c := Default()
	for _, pair := range opts.Environ {
		if pair == envInsecure+"=1" {
			c.insecureAllowed = true
		}
	}
	c.decode(k.Raw(), &faults)
	if opts.Derive != nil {
		opts.Derive(c)
	}
	c.validate(opts.Process, &faults)
	if err := faults.err(); err != nil {
		return nil, err
	}
	return c, nil
}

func loadFile(k *koanf.Koanf, opts Options) error {
	path := opts.Path
	if path == "" {
		path = DefaultPath
	}
	raw, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && opts.Path == "" && opts.Optional:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %s", ErrNotFound, path)
	case err != nil:
		return fmt.Errorf("cannot read configuration file: %w", err)
	}
	if err := k.Load(rawbytes.Provider(raw), toml.Parser()); err != nil {
		return fmt.Errorf("failed to load configuration from %s: %w", path, err)
	}
	return nil
}

// environment maps RACKBUS_SECTION__KEY to section.key. A variable without "__"
// counts only when it names a key outside of sections: Kubernetes sets
// variables such as RACKBUS_API_PORT, and RACKBUS_PORT=tcp://..., for a service
// named rackbus.
func environment(environ []string) koanf.Provider {
	top := make(map[string]bool)
	for _, f := range Default().fields() {
		top[f.path] = !strings.Contains(f.path, ".")
	}
	return env.Provider(".", env.Opt{
		Prefix:      envPrefix,
		EnvironFunc: func() []string { return environ },
		TransformFunc: func(name, value string) (string, any) {
			if name == envInsecure {
				return "", nil
			}
			path := strings.ToLower(strings.TrimPrefix(name, envPrefix))
			if !strings.Contains(path, "__") && (!top[path] || strings.HasPrefix(value, "tcp://")) {
				return "", nil
			}
			path = strings.ReplaceAll(path, "__", ".")
			return path, typed(path, value)
		},
	})
}

// EnsureWritable makes the directory when it is missing and checks that files
// can be written in it.
func EnsureWritable(dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	probe, err := os.CreateTemp(dir, ".rackbus-probe-*")
	if err != nil {
		return fmt.Errorf("directory is not writable: %w", err)
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}
