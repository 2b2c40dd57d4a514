// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"time"
)

// Policies for host keys.
const (
	hostKeysTrustOnFirstUse = "trust_on_first_use"
	hostKeysStrict          = "strict"
	hostKeysOff             = "off"
)

// legacyFamilies are those whose devices are reached over SSH.
var legacyFamilies = []string{"compute", "switch"}

// stopLimit is how long the jobs service waits for a job that it terminates; a
// last release has to fit into it.
const stopLimit = 2 * time.Minute

// placeholder is what the arguments of the validation's commands may hold.
var placeholder = regexp.MustCompile(`\{[^{}]*\}`)

var knownPlaceholders = []string{
	"{job_id}", "{rack_id}", "{node_id}", "{node_type}", "{bmc_address}", "{bmc_port}", "{host_address}", "{host_port}",
	"{log_dir}", "{work_dir}",
}

// overridePlaceholder stands only where a request brings a configuration.
const overridePlaceholder = "{config_override}"

func (c *Config) checkSSH(faults *Faults) {
	s := &c.SSH
	switch s.HostKeyPolicy {
	case hostKeysTrustOnFirstUse, hostKeysStrict:
	case hostKeysOff:
		if s.KnownHosts != "" {
			faults.add("ssh.known_hosts", s.KnownHosts, "is not used while ssh.host_key_policy is off")
		}
	default:
		faults.add("ssh.host_key_policy", s.HostKeyPolicy, "must be trust_on_first_use, strict or off")
	}
	for i, family := range s.LegacyFamilies {
		if !slices.Contains(legacyFamilies, family) {
			faults.add(fmt.Sprintf("ssh.legacy_families[%d]", i), family, "must be compute or switch")
		}
	}
}

func (c *Config) checkValidation(p Process, faults *Faults) {
	v := &c.Validation
	if len(v.Command) == 0 {
		for key, set := range map[string]bool{"release_command": len(v.ReleaseCommand) > 0, "environment_file": v.EnvironmentFile != ""} {
			if set {
				faults.add("validation."+key, nil, "needs validation.command")
			}
		}
		return
	}
	checkCommand("validation.command", v.Command, nil, faults)
	checkCommand("validation.override_arguments", v.OverrideArguments, []string{overridePlaceholder}, faults)
	checkCommand("validation.release_command", v.ReleaseCommand, nil, faults)
	for key, dir := range map[string]string{"work_dir": v.WorkDir, "log_dir": c.ValidationLogDir()} {
		if !filepath.IsAbs(dir) {
			faults.add("validation."+key, dir, "must be an absolute path")
		}
	}
	if v.LastReleaseLimit >= stopLimit {
		faults.add("validation.last_release_limit", durationText(v.LastReleaseLimit), "must be less than "+durationText(stopLimit))
	}
	if p != ProcessComputeAgent && p != ProcessStandalone {
		return // elsewhere the programs need not be there
	}
	for key, command := range map[string][]string{"command": v.Command, "release_command": v.ReleaseCommand} {
		if len(command) > 0 {
			checkProgram("validation."+key, command[0], faults)
		}
	}
}

func checkCommand(path string, words, more []string, faults *Faults) {
	for i, word := range words {
		for _, name := range placeholder.FindAllString(word, -1) {
			if !slices.Contains(knownPlaceholders, name) && !slices.Contains(more, name) {
				faults.add(fmt.Sprintf("%s[%d]", path, i), word, "holds the unknown placeholder "+name)
			}
		}
	}
}

func checkProgram(path, program string, faults *Faults) {
	if !filepath.IsAbs(program) {
		faults.add(path+"[0]", program, "must be the absolute path of a program")
		return
	}
	if info, err := os.Stat(program); err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		faults.add(path+"[0]", program, "is no program")
	}
}

// InBandTiming returns the waits for host operating systems with the scale applied.
func (c *Config) InBandTiming() InBandTiming { return scaled(c.Timing.InBand, c.Timing.Scale) }

// ValidationLogDir returns the directory of the validations' output.
func (c *Config) ValidationLogDir() string {
	if c.Validation.LogDir != "" {
		return c.Validation.LogDir
	}
	return filepath.Join(c.Validation.WorkDir, "logs")
}

// KnownHosts returns the file with the keys of hosts, empty when none are checked.
func (c *Config) KnownHosts() (string, error) {
	switch {
	case c.SSH.HostKeyPolicy == hostKeysOff:
		return "", nil
	case c.SSH.KnownHosts != "":
		return c.SSH.KnownHosts, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		// Services often run without HOME.
		me, uerr := user.Current()
		if uerr != nil || me.HomeDir == "" {
			return "", fmt.Errorf("ssh.known_hosts is not set, and the user has no home directory: %w", errors.Join(err, uerr))
		}
		home = me.HomeDir
	}
	return filepath.Join(home, ".ssh", "known_hosts"), nil
}

// LegacySSH reports whether a family's devices are offered old algorithms.
func (c *Config) LegacySSH(family string) bool { return slices.Contains(c.SSH.LegacyFamilies, family) }
