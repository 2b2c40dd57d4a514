// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/cmd/rackctl/internal/cli"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// TestNothingIsPassedOver: what a command line has that makes no sense is refused before anything is asked, with the
// value and what to write in its place.
func TestNothingIsPassedOver(t *testing.T) {
	t.Parallel()
	l := furnished(t)
	file := l.rackFile()
	for line, want := range map[string]string{
		"power off --type compute_gb200_nvidia lab/tray-01":            "not among names",
		"power get --rack lab --all --type foo":                        `--type "foo" is no node type`,
		"power on lab/tray-01 --on-busy queue":                         `--on-busy "queue" is none of refuse, force`,
		"nodes list --type foo":                                        `--type "foo"`,
		"validate -f " + file + " --type foo":                          `--type "foo"`,
		"validate -f " + file + " --on-busy force":                     "is none of refuse, queue, supersede",
		"job list --since yesterday":                                   "7d",
		"job list --since -2h":                                         "7d",
		"audit list --since 0d":                                        "7d",
		"audit list --limit -1":                                        "--limit -1",
		"job list --limit -1":                                          "--limit -1",
		"racks --timeout -1s":                                          "--timeout -1s",
		"reboot -f " + file + " --yes --bmc-wait -1s":                  "--bmc-wait -1s",
		"switch attest -f " + file:                                     "openssl rand",
		"switch attest -f " + file + " --nonce 00":                     "32 bytes",
		"switch image update -f " + file:                               "--image is missing",
		"switch firmware push lab/switch-01":                           "--component is needed",
		"switch certificate -f " + file:                                "--service is missing",
		"switch password -f " + file:                                   "--of-user is missing",
		"switch fabric configure -f " + file:                           "--topology is missing",
		"switch fabric configure -f " + file + " --topology t --set a": `--set "a" is not FILE:KEY=VALUE`,
		"firmware plan apply -f " + file:                               "firmware plan check makes one",
		"nodse":                                                        "did you mean nodes?",
		"power onn":                                                    "on?",
		"help nope":                                                    `unknown command "nope"`,
		"help power nope":                                              `unknown command "nope" for "rackctl power"`,
		"completion tcsh":                                              `unknown command "tcsh"`,
		"racks more":                                                   `unknown command "more" for "rackctl racks"`,
		"switch fabric telemetry":                                      "",
	} {
		got := l.run(strings.Fields(line)...)
		if want == "" {
			require.Equal(t, cli.ExitOK, got.code, "%s: a group shows its help", line)
			continue
		}
		require.Equal(t, cli.ExitUsage, got.code, "%s: %s", line, got.stderr)
		require.Contains(t, got.stderr, want, line)
		require.Contains(t, got.stderr, "--help", line)
		require.Empty(t, got.stdout, line)
	}
	for _, call := range []string{"SetPowerState", "StartSystemValidation", "ExecuteColdReboot", "ListJobs", "ListAuditRecords"} {
		require.Empty(t, l.callsOf(call), call)
	}
	got := run(t, "switch", "image", "update", "-f", file)
	require.Contains(t, got.stderr, "--image is missing", "the command line is looked at before the configuration")
}

func TestSince(t *testing.T) {
	t.Parallel()
	l := furnished(t)
	for text, want := range map[string]time.Duration{"90m": 90 * time.Minute, "7d": 7 * 24 * time.Hour} {
		require.Equal(t, cli.ExitOK, l.run("job", "list", "--since", text).code)
		require.Equal(t, noon.Add(-want), last[*rackbusv1.ListJobsRequest](l, "ListJobs").GetFilter().GetCreatedSince().AsTime(), text)
	}
}

// TestNotRegistered: a node that is not there is another failure than one that did not do as it was told.
func TestNotRegistered(t *testing.T) {
	t.Parallel()
	l := furnished(t)
	const failure = rackmanager.ReturnCode_RETURN_CODE_FAILURE
	l.says("GetPowerState", &rackmanager.GetPowerStateResponse{Status: failure})
	l.says("SetPowerState", &rackmanager.SetPowerStateResponse{Status: failure})
	l.says("GetNodeFirmwareInventory", &rackmanager.GetNodeFirmwareInventoryResponse{Status: failure})
	l.says("GetRackFirmwareInventory", &rackmanager.GetRackFirmwareInventoryResponse{Status: failure})
	l.says("ListSwitchSystemImages", &rackmanager.ListSwitchSystemImagesResponse{Status: failure, ErrorMessage: "why"})
	l.says("UpdateFirmware", &rackmanager.UpdateFirmwareResponse{Status: failure, Message: "why"})
	l.says("DeleteNode", &rackmanager.DeleteNodeResponse{Response: &rackmanager.OperationResponse{Status: failure}})
	for _, line := range []string{
		"power get NODE", "power on NODE", "firmware inventory NODE", "switch image list NODE", "firmware update x --node NODE", "nodes delete NODE --yes",
	} {
		for node, code := range map[string]int{"lab/tray-01": cli.ExitFailed, "lab/tray-99": cli.ExitNotFound} {
			got := l.run(strings.Fields(strings.ReplaceAll(line, "NODE", node))...)
			require.Equal(t, code, got.code, "%s %s: %s", line, node, got.stderr)
		}
	}
	require.Equal(t, cli.ExitFailed, l.run("power", "get", "lab/tray-01", "lab/tray-99").code)
	require.Equal(t, cli.ExitFailed, l.run("firmware", "inventory", "--rack", "lab").code)
	require.Equal(t, cli.ExitNotFound, l.run("firmware", "inventory", "--rack", "nowhere").code)
}

// full is a disk without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// TestLostOutput: a script must not take half an answer for all of it.
func TestLostOutput(t *testing.T) {
	t.Parallel()
	l := furnished(t)
	for _, line := range []string{"racks", "racks -o json", "job get " + batchID, "--help", "whoami --help", "context list -o yaml"} {
		got := l.runIn(func(env *cli.Env) { env.Stdout = full{} }, strings.Fields(line)...)
		require.Equal(t, cli.ExitFailed, got.code, line)
		require.Contains(t, got.stderr, "no space left", line)
	}
}

// TestCompletionOfFlags: a flag is completed wherever it stands, and nothing offers files where none can be given.
func TestCompletionOfFlags(t *testing.T) {
	t.Parallel()
	l := furnished(t)
	config := l.write("config.yaml", []byte("contexts: {lab: {address: a}, prod: {address: b}}"))
	for line, want := range map[string]string{
		"racks --context ":                      "prod",
		"job get x --context ":                  "lab",
		"diag lab/tray-01 --job ":               batchID,
		"job list --parent ":                    batchID,
		"firmware apply -f x tray-01 --object ": "ACME72_9.1.0",
		"power on lab/tray-01 lab/":             "lab/tray-02",
		"switch image apply --software ":        "prod",
		"racks ":                                "",
		"job get " + batchID + " ":              "",
		"bootstrap ":                            "",
	} {
		got := l.run(append([]string{"--config", config, "__complete"}, strings.Split(line, " ")...)...)
		require.Equal(t, cli.ExitOK, got.code, "%s: %s", line, got.stderr)
		require.Contains(t, got.stdout, want, line)
		require.Contains(t, got.stdout, ":4\n", "%s: no files", line)
	}
}

// TestDryRunNeedsNoPassword: comparing asks nobody.
func TestDryRunNeedsNoPassword(t *testing.T) {
	t.Parallel()
	l := furnished(t)
	file := l.write("bare.csv", []byte("rack,node,type,bmc_address,bmc_mac\nlab,tray-01,compute_gb200_nvidia,10.0.0.1,02:00:00:00:00:01\n"))
	for _, verb := range []string{"create", "update"} {
		got := l.runIn(func(env *cli.Env) {
			env.Ask = func(string) ([]byte, error) { return nil, errors.New("asked") }
		}, "nodes", verb, "-f", file, "--dry-run")
		require.Equal(t, cli.ExitOK, got.code, got.stderr)
		require.Contains(t, got.stdout, "tray-01")
	}
}

// TestAllFaultsOfAFile are told at once, those of its form and those of what it says.
func TestAllFaultsOfAFile(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	got := l.run("nodes", "create", "-f", l.write("bad.csv", []byte("rack,node,type,bmc_address\nlab,a,compute_gb200_nvidia,1\nlab,b\n")))
	require.Equal(t, cli.ExitUsage, got.code)
	require.Contains(t, got.stderr, `bad.csv:2: bmc_address "1" is no IP address`)
	require.Contains(t, got.stderr, "bad.csv:3: 2 fields where the head has 4 columns")
	got = l.run("nodes", "create", "-f", l.write("semi.csv", []byte("rack;node;type\nlab;a;b\n")))
	require.Contains(t, got.stderr, "separated by commas")
}

// TestNewPasswordTwice: what nobody has seen yet is typed twice.
func TestNewPasswordTwice(t *testing.T) {
	t.Parallel()
	l := furnished(t)
	l.says("UpdateSwitchSystemPassword", &rackmanager.UpdateSwitchSystemPasswordResponse{Response: admitted()})
	args := []string{"switch", "password", "-f", l.rackFile(), "--of-user", "admin"}
	typed := func(answers ...string) (func(*cli.Env), *[]string) {
		prompts := &[]string{}
		return func(env *cli.Env) {
			env.Ask = func(prompt string) ([]byte, error) {
				*prompts = append(*prompts, prompt)
				return []byte(answers[len(*prompts)-1]), nil
			}
		}, prompts
	}
	change, prompts := typed("s3cret", "s3crte")
	got := l.runIn(change, args...)
	require.Equal(t, cli.ExitUsage, got.code)
	require.Contains(t, got.stderr, "the two passwords differ")
	require.Equal(t, []string{"New password of admin: ", "Once more: "}, *prompts)
	require.Empty(t, l.callsOf("UpdateSwitchSystemPassword"))
	change, _ = typed("s3cret", "s3cret")
	require.Equal(t, cli.ExitOK, l.runIn(change, args...).code)
	require.Equal(t, "s3cret", last[*rackmanager.UpdateSwitchSystemPasswordRequest](l, "UpdateSwitchSystemPassword").GetPassword())
}
