// SPDX-License-Identifier: Apache-2.0

package validator

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rackbus/rackbus/pkg/seal"
	"github.com/rackbus/rackbus/pkg/secret"
)

// ErrInvalidOptions is wrapped by errors about Options.
var ErrInvalidOptions = errors.New("validator: invalid options")

// EnvironmentKind is the kind of the sealed document that holds the environment.
const EnvironmentKind = "validation-environment"

// Options configure a Validator. Zero limits take their defaults.
type Options struct {
	// Command is the program and its arguments; empty when there is no validator.
	// Placeholders such as {node_id} are replaced, see placeholders.
	Command []string
	// Override are further arguments when a request brings a configuration of its
	// own, which {config_override} stands for.
	Override []string
	// Release is the command that frees the node afterwards; empty for none.
	Release []string
	// Environment returns further variables, one NAME=value a line. It is asked for
	// every run and may be nil.
	Environment func() (secret.Value, error)
	// WorkDir is the directory the commands run in, LogDir the one below which each
	// job gets a directory for their output.
	WorkDir string
	LogDir  string
	// Limit bounds a validation; default 8 h.
	Limit time.Duration
	// ReleaseLimit bounds one release; default 5 min. LastReleaseLimit bounds the
	// one of a job that is cut; default 60 s, less than what the jobs service waits
	// for a job that it terminates. ReleaseRetry passes before a failed one is
	// repeated; default 30 s.
	ReleaseLimit     time.Duration
	LastReleaseLimit time.Duration
	ReleaseRetry     time.Duration
	// KillGrace passes between asking a command to stop and killing it; default
	// 10 s.
	KillGrace time.Duration
	// Poll is how often a running validation looks whether it is asked to stop;
	// default 500 ms.
	Poll time.Duration
	// MaxOutput bounds what is kept of each output for the result, in bytes; default
	// 64 KiB. MaxLog bounds each log file; default 64 MiB.
	MaxOutput int
	MaxLog    int64
	// MaxRunning bounds the validations of one agent at a time; default 16.
	MaxRunning int
}

func (o Options) withDefaults() (Options, error) {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&o.Limit, 8 * time.Hour},
		{&o.ReleaseLimit, 5 * time.Minute},
		{&o.LastReleaseLimit, time.Minute},
		{&o.ReleaseRetry, 30 * time.Second},
		{&o.KillGrace, 10 * time.Second},
		{&o.Poll, 500 * time.Millisecond},
	} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	if o.MaxOutput <= 0 {
		o.MaxOutput = 64 << 10
	}
	if o.MaxLog <= 0 {
		o.MaxLog = 64 << 20
	}
	if o.MaxRunning <= 0 {
		o.MaxRunning = 16
	}
	if len(o.Command) == 0 {
		return o, nil
	}
	for _, command := range [][]string{o.Command, o.Release} {
		if len(command) > 0 && !filepath.IsAbs(command[0]) {
			return o, fmt.Errorf("%w: %q is no absolute path of a program", ErrInvalidOptions, command[0])
		}
	}
	for _, dir := range []string{o.WorkDir, o.LogDir} {
		if !filepath.IsAbs(dir) {
			return o, fmt.Errorf("%w: %q is no absolute path of a directory", ErrInvalidOptions, dir)
		}
	}
	return o, nil
}

// placeholders are what arguments may hold between braces.
func placeholders() []string {
	return []string{
		"job_id", "rack_id", "node_id", "node_type", "bmc_address", "bmc_port", "host_address", "host_port",
		"log_dir", "work_dir", "config_override",
	}
}

// expand replaces the placeholders of arguments.
func expand(arguments []string, values map[string]string) []string {
	var pairs []string
	for _, name := range placeholders() {
		pairs = append(pairs, "{"+name+"}", values[name])
	}
	r := strings.NewReplacer(pairs...)
	out := make([]string, len(arguments))
	for i, a := range arguments {
		out[i] = r.Replace(a)
	}
	return out
}

// EnvironmentFile reads the environment from a file sealed for the agent's family.
func EnvironmentFile(path string, opener *seal.Opener) func() (secret.Value, error) {
	return func() (secret.Value, error) {
		text, err := os.ReadFile(path)
		if err != nil {
			return secret.Value{}, fmt.Errorf("environment of the validator: %w", err)
		}
		plain, err := seal.OpenDocument(opener, EnvironmentKind, text)
		if err != nil {
			return secret.Value{}, fmt.Errorf("environment of the validator: %w", err)
		}
		return plain, nil
	}
}
