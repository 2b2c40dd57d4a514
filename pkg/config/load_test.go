// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/certs"
	"github.com/rackbus/rackbus/pkg/config"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/seal"
	"github.com/rackbus/rackbus/pkg/telemetry"
)

const allowInsecure = "RACKBUS_ALLOW_INSECURE=1"

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// load reads content as the jobs service, which needs the least.
func load(t *testing.T, content string, environ ...string) (*config.Config, error) {
	t.Helper()
	return config.Load(config.Options{Process: config.ProcessJobs, Path: write(t, content), Environ: environ})
}

func TestAnEmptyFileTakesTheDefaults(t *testing.T) {
	c, err := load(t, "")
	require.NoError(t, err)
	require.Equal(t, config.Default(), c)
	require.Equal(t, "0.0.0.0:8801", c.GRPCAddr())
	require.Equal(t, "0.0.0.0:8802", c.MetricsAddr())
	require.Equal(t, 24*time.Hour, c.TerminalJobTTL())
	require.Equal(t, time.Hour, c.SFTPUploadTimeout())
	require.Equal(t, 30*time.Second, c.SFTPStepTimeout())
	require.Equal(t, "/var/lib/rackbus/keys", c.KeyDir())
	require.Equal(t, "refuse", c.OnBusy("firmware_update"))
	require.Empty(t, c.Tracing.Endpoint, "traces are off")
	for jobType, want := range map[string]time.Duration{
		"firmware_update": 4 * time.Hour, "cold_reboot_sequence": 4 * time.Hour, "switch_system_image_update": 3 * time.Hour,
		"switch_factory_default_reset": 2 * time.Hour, "switch_sdn_factory_default_reset": 2 * time.Hour,
		"switch_certificate": time.Hour, "of the future": time.Hour,
	} {
		require.Equal(t, want, c.RunDeadline(jobType), jobType)
	}
}

func TestPrecedence(t *testing.T) {
	path := write(t, `
port = 1
[metrics]
port = 2
[bus]
urls = ["nats://file:4222"]
[jobs.on_busy]
firmware_update = "queue"
switch_certificate = "queue"
[jobs.run_deadline]
firmware_update = "5h"
[workflows.expected_inventory_profiles]
"gold.v1" = ["A"]
`)
	c, err := config.Load(config.Options{
		Process: config.ProcessJobs,
		Path:    path,
		Environ: []string{
			"RACKBUS_PORT=11", "RACKBUS_METRICS__PORT=12", "RACKBUS_BUS__URLS=nats://env:1, nats://env:2",
			"RACKBUS_JOBS__ON_BUSY__FIRMWARE_UPDATE=supersede", "RACKBUS_API__REFLECTION=true",
			"RACKBUS_TIMING__REDFISH__POWER_POLL=1s", "HOME=/root", allowInsecure,
			// What Kubernetes sets for services named rackbus and rackbus-api.
			"RACKBUS_SERVICE_HOST=10.0.0.1", "RACKBUS_API_PORT=tcp://10.0.0.2:8801", "RACKBUS_PORT_8801_TCP_ADDR=10.0.0.1",
		},
		Set: []string{"metrics.port=22", "timing.scale=0.5", "jobs.run_deadline.switch_mtls_disable=7m", "logging.log_level=a=debug,warn"},
	})
	require.NoError(t, err)
	require.EqualValues(t, 11, c.Port, "environment over file")
	require.EqualValues(t, 22, c.Metrics.Port, "flag over environment")
	require.Equal(t, []string{"nats://env:1", "nats://env:2"}, c.Bus.URLs)
	require.True(t, c.API.Reflection)
	require.Equal(t, time.Second, c.Timing.Redfish.PowerPoll)
	require.Equal(t, 0.5, c.Timing.Scale)
	require.Equal(t, "supersede", c.OnBusy("firmware_update"))
	require.Equal(t, "queue", c.OnBusy("switch_certificate"))
	require.Equal(t, "refuse", c.OnBusy("cold_reboot_sequence"))
	require.Equal(t, 5*time.Hour, c.RunDeadline("firmware_update"))
	require.Equal(t, 7*time.Minute, c.RunDeadline("switch_mtls_disable"))
	require.Equal(t, 4*time.Hour, c.RunDeadline("cold_reboot_sequence"), "other defaults stay")
	require.Equal(t, []string{"A"}, c.Workflows.ExpectedInventoryProfiles["gold.v1"].APNames)
	require.Equal(t, "a=debug,warn", c.Logging.LogLevel)
}

func TestKubernetesPortIsNoPort(t *testing.T) {
	c, err := load(t, "", "RACKBUS_PORT=tcp://10.0.0.1:8801")
	require.NoError(t, err)
	require.EqualValues(t, 8801, c.Port)
}

func TestFileMustExist(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none.toml")
	_, err := config.Load(config.Options{Process: config.ProcessJobs, Path: missing, Optional: true})
	require.ErrorIs(t, err, config.ErrNotFound)
	require.ErrorContains(t, err, missing)
	_, err = config.Load(config.Options{Process: config.ProcessJobs, Path: t.TempDir()})
	require.ErrorContains(t, err, "cannot read configuration file")
	_, err = load(t, "port = \n[")
	require.ErrorContains(t, err, "failed to load configuration from")
}

func TestInventoryProfiles(t *testing.T) {
	c, err := load(t, `
[workflows.expected_inventory_profiles]
legacy = [" HGX_FW_BMC_0 ", "hgx_fw_bmc_0", "FW_CPLD"]
" trimmed " = { ap_names = ["A"], flint_devices = { cx7 = 4, bf3_nic = 0 } }
counts = { flint_devices = { cx8 = 1 } }
`)
	require.NoError(t, err)
	require.Equal(t, map[string]config.InventoryProfile{
		"legacy":  {APNames: []string{"HGX_FW_BMC_0", "FW_CPLD"}},
		"trimmed": {APNames: []string{"A"}, FlintDevices: map[string]int{"cx7": 4, "bf3_nic": 0}},
		"counts":  {FlintDevices: map[string]int{"cx8": 1}},
	}, c.Workflows.ExpectedInventoryProfiles)
}

func TestBusTiming(t *testing.T) {
	c, err := load(t, "")
	require.NoError(t, err)
	got := c.BusTiming()
	require.Equal(t, config.BusTiming{
		SessionTTL: 6 * time.Second, SessionRenew: 1500 * time.Millisecond, SessionMargin: time.Second, AckWait: 6 * time.Second,
		WorkInterval: 2 * time.Second, NakBusy: time.Second, FoldTTL: 5 * time.Second, FoldRenew: time.Second,
		FoldCommitInterval: 50 * time.Millisecond, ProgressInterval: 5 * time.Second, AdmitTimeout: time.Minute,
	}, got)

	c, err = load(t, "[bus]\nreplicas = 3\n[timing]\nscale = 0.1\n[timing.bus]\nsession_ttl = \"20s\"")
	require.NoError(t, err)
	got = c.BusTiming()
	require.Equal(t, config.BusTiming{
		SessionTTL: 20 * time.Second, SessionRenew: 2 * time.Second, SessionMargin: 2 * time.Second, AckWait: 12 * time.Second,
		WorkInterval: 4 * time.Second, NakBusy: 2 * time.Second, FoldTTL: 15 * time.Second, FoldRenew: 2 * time.Second,
		FoldCommitInterval: 50 * time.Millisecond, ProgressInterval: 5 * time.Second, AdmitTimeout: time.Minute,
	}, got, "the scale never touches leases")
}

func TestScale(t *testing.T) {
	c, err := load(t, "[timing]\nscale = 0.01")
	require.NoError(t, err)
	r := c.RedfishTiming()
	require.Equal(t, 1800*time.Millisecond, r.AuxSettleGB200)
	require.Equal(t, 50*time.Millisecond, r.TaskPollInterval)
	require.Equal(t, 54*time.Second, r.TaskLimitCompute)
	require.Equal(t, 30*time.Second, r.RequestTimeout, "one request is not faster")
	require.Equal(t, 5*time.Second, r.ManagerProbeTimeout)
	require.Equal(t, 5, r.VerifyAttempts)
	require.Equal(t, 3*time.Second, c.ColdRebootTiming().ComputeBootWait)
	require.Equal(t, 3*time.Minute, c.Timing.Redfish.AuxSettleGB200, "the setting itself stays")
}

func TestFlags(t *testing.T) {
	var f config.Flags
	set := flag.NewFlagSet("test", flag.ContinueOnError)
	f.Bind(set)
	require.NoError(t, set.Parse([]string{"--config", write(t, ""), "--insecure", "--set", "port=0", "--set", "keys.dir=/k", "--print-config"}))
	require.True(t, f.PrintConfig)
	opts := f.Options(config.ProcessAPI)
	opts.Environ = []string{allowInsecure}
	c, err := config.Load(opts)
	require.NoError(t, err)
	require.True(t, c.Plaintext())
	require.Zero(t, c.Port)
	require.Equal(t, "/k", c.KeyDir())

	opts.Environ = []string{"RACKBUS_ALLOW_INSECURE=true"}
	_, err = config.Load(opts)
	require.ErrorContains(t, err, "needs RACKBUS_ALLOW_INSECURE=1")
}

func TestLogOptions(t *testing.T) {
	c, err := load(t, "[logging]\nlog_level = \"debug\"\nformat = \"json\"\nenable_timestamps = true")
	require.NoError(t, err)
	opts := c.LogOptions()
	require.Equal(t, "DEBUG", opts.Level.Level().String())
	require.Equal(t, telemetry.FormatJSON, opts.Format)
	require.True(t, opts.Timestamps)
}

// TestPrintConfig: what is printed shows no secret, and read back gives the
// same configuration.
func TestPrintConfig(t *testing.T) {
	seed, public, err := seal.GenerateFamilyKey()
	require.NoError(t, err)
	content := `
listen = "127.0.0.1"
[bus]
urls = ["nats://user:pl4nted@host:4222"]
[keys.families_public]
compute = ["` + public + `"]
[jobs.on_busy]
default = "queue"
[timing]
scale = 2
[workflows.expected_inventory_profiles]
"a b" = { ap_names = ["x \"y\""], flint_devices = { cx7 = 1 } }
`
	c, err := load(t, content)
	require.NoError(t, err)
	shown := c.String()
	require.NotContains(t, shown, "pl4nted")
	require.NotContains(t, shown, seed.Reveal())
	for _, line := range []string{
		`urls = ["nats://XXXX@host:4222"]`, `port = 8801`, `admit_timeout = "1m"`, `session_ttl = "0s"`, `scale = 2.0`,
		`on_busy = { default = "queue" }`, `"a b" = { ap_names = ["x \"y\""], flint_devices = { cx7 = 1 } }`, "[timing.redfish]",
	} {
		require.Contains(t, shown, line)
	}
	again, err := load(t, strings.Replace(shown, "XXXX@", "user:pl4nted@", 1))
	require.NoError(t, err)
	require.Equal(t, c, again)
}

func TestPublicKeys(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, seal.WriteKeys(dir, node.Families()))
	c, err := load(t, "[keys]\ndir = \""+dir+"\"")
	require.NoError(t, err)
	keys, err := c.PublicKeys()
	require.NoError(t, err)
	require.Len(t, keys, 3)

	c, err = load(t, "[keys]\nfamilies_public = { switch = [\""+keys[node.FamilyCompute][0]+"\"] }")
	require.NoError(t, err)
	listed, err := c.PublicKeys()
	require.NoError(t, err)
	require.Equal(t, seal.PublicKeys{node.FamilySwitch: keys[node.FamilyCompute]}, listed)
}

func TestEnsureWritable(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	require.NoError(t, config.EnsureWritable(dir))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.Error(t, config.EnsureWritable(file))
}

// TestGeneratedMaterial: what `rackbus keys init` writes fits a configuration
// of the API without plaintext.
func TestGeneratedMaterial(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, certs.InitCA(dir, nil))
	require.NoError(t, seal.WriteKeys(dir, node.Families()))
	c, err := config.Load(config.Options{Process: config.ProcessAPI, Path: write(t, `
[tls]
cert = "`+dir+`/server.crt"
key = "`+dir+`/server.key"
ca = "`+dir+`/ca.crt"
[metrics]
tls = true
[keys]
dir = "`+dir+`"`)})
	require.NoError(t, err)
	require.False(t, c.Plaintext())
	_, err = certs.Load(certs.Files{Cert: c.TLS.Cert, Key: c.TLS.Key, CA: c.TLS.CA}, certs.Options{})
	require.NoError(t, err)
}
