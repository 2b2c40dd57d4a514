// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/test/cluster"
)

// commands are the lines of the sh blocks of docs/running.md, by the program that they run.
func commands(t *testing.T) map[string][][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, "docs", "running.md"))
	require.NoError(t, err)
	out := map[string][][]string{}
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		for line := range strings.Lines(block[1]) {
			words := strings.Fields(line)
			out[words[0]] = append(out[words[0]], words)
		}
	}
	return out
}

// TestCommandsOfTheDocumentation: what docs/running.md tells to type names files, units and targets that there are, and
// flags that the programs take. rackctl tests its own lines.
func TestCommandsOfTheDocumentation(t *testing.T) {
	bin, install := cluster.Programs(t), siteForUnits(t)
	shippedUnits := units(t)
	all := commands(t)
	checked := []string{
		"rackctl", // by cmd/rackctl
		"nats",    // by docs/events.md's test, and requireOutsiderReads
		"set",     // TestShellReadsTheVariables
		"systemd-sysusers", "systemd-tmpfiles",
	}
	for program, lines := range all {
		for _, words := range lines {
			switch program {
			case "go":
				require.Equal(t, "go build -C test -o ../bin/nats-server github.com/nats-io/nats-server/v2", strings.Join(words, " "))
			case "install":
				for _, w := range words {
					if strings.HasPrefix(w, "deploy/") {
						require.FileExists(t, filepath.Join(repository, w))
					}
					if name, found := strings.CutPrefix(w, "bin/"); found {
						require.FileExists(t, filepath.Join(bin, name))
					}
				}
			case "chown":
				for _, w := range words[3:] {
					require.DirExists(t, strings.ReplaceAll(w, "/etc/rackbus", install))
				}
			case "systemctl":
				for _, w := range words {
					if strings.HasPrefix(w, "rackbus") {
						require.Contains(t, shippedUnits, w)
					}
				}
			case "docker":
				target := words[slices.Index(words, "--target")+1]
				require.Contains(t, programStages(t), target)
				require.FileExists(t, filepath.Join(repository, words[slices.Index(words, "-f")+1]))
			case "nats-server":
				require.Equal(t, "/etc/rackbus/nats/single.conf", words[2])
			case "rackbus-api", "rackbus-jobs":
				require.Contains(t, words, "--print-config")
				args := strings.Fields(strings.ReplaceAll(strings.Join(words[1:], " "), "/etc/rackbus", install))
				out, err := exec.CommandContext(t.Context(), filepath.Join(bin, program), args...).CombinedOutput()
				require.NoError(t, err, "%v: %s", words, out)
			default:
				require.Contains(t, checked, program)
			}
		}
	}
	require.Contains(t, all, "systemctl", "the documentation has been read")
}

// TestShellReadsTheVariables: a shell makes of nats.env what systemd does.
func TestShellReadsTheVariables(t *testing.T) {
	bin, install := cluster.Programs(t), siteForUnits(t)
	script := `set -a; . "$1/nats/nats.env"; set +a; exec "$2/nats-server" -c "$1/nats/single.conf" -t`
	out, err := exec.CommandContext(t.Context(), "sh", "-c", script, "sh", install, bin).CombinedOutput()
	require.NoError(t, err, "%s", out)

	env, err := os.ReadFile(filepath.Join(install, "nats", "nats.env"))
	require.NoError(t, err)
	printed, err := exec.CommandContext(t.Context(), "sh", "-c", `set -a; . "$1/nats/nats.env"; env`, "sh", install).Output()
	require.NoError(t, err)
	for line := range bytes.Lines(env) {
		if !bytes.HasPrefix(line, []byte("#")) {
			require.Contains(t, string(printed), string(line))
		}
	}
}
