// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/config"
)

// TestFaults: each bad value is refused with its key, the value as given and a
// reason.
func TestFaults(t *testing.T) {
	tests := []struct {
		name    string
		process config.Process // jobs when empty
		content string
		environ []string
		want    []string
	}{
		{name: "port too large", content: `port = 70000`, want: []string{`port = 70000: must be a whole number from 0 to 65535`}},
		{name: "port as text", content: `port = "8801"`, want: []string{`port = "8801": must be a whole number from 0 to 65535`}},
		{name: "same ports", content: `port = 9`, environ: []string{"RACKBUS_METRICS__PORT=9"},
			want: []string{`metrics.port = 9: metrics.port (9) must differ from port (9)`}},
		{name: "metrics tls without material", content: "[metrics]\ntls = true",
			want: []string{`metrics.tls = true: metrics.tls requires gRPC TLS material (tls.cert and tls.key)`}},
		{name: "text for a switch", content: "[metrics]\ntls = \"yes\"", want: []string{`metrics.tls = "yes": must be true or false`}},
		{name: "number for text", content: "listen = 1", want: []string{`listen = 1: must be text in quotes`}},
		{name: "value for a section", content: "bus = 1", want: []string{`bus = 1: must be a table`}},
		{name: "text for a list", content: "[bus]\nurls = \"nats://x\"", want: []string{`bus.urls = "nats://x": must be a list`}},
		{name: "number in a list", content: "[agent]\nfamilies = [1]", want: []string{`agent.families[0] = 1: must be text in quotes`}},
		{name: "number in a map", content: "[jobs.run_deadline]\nfirmware_update = 4", want: []string{`jobs.run_deadline.firmware_update = 4: must be a duration in quotes, such as "30s"`}},

		{name: "unknown key", content: "[bus]\nulrs = []", want: []string{`bus.ulrs: unknown key, did you mean bus.urls?`}},
		{name: "unknown section", content: "[metrix]\nport = 1", want: []string{`metrix.port: unknown key, did you mean metrics.port?`}},
		{name: "unknown top key", content: "prot = 1", want: []string{`prot: unknown key, did you mean port?`}},
		{name: "nothing near", content: "zzzzzzzzzz = 1", want: []string{`zzzzzzzzzz: unknown key`}},
		{name: "unknown key from the environment", environ: []string{"RACKBUS_BUS__REPLIKAS=3"}, want: []string{`bus.replikas: unknown key, did you mean bus.replicas?`}},
		{name: "retired section", content: "[postgres]\ndb_url = \"postgres://u:pl4nted@h\"", want: []string{`postgres: state lives on the bus; remove this section`}},

		{name: "insecure without gate", content: "[tls]\ninsecure = true", want: []string{`tls.insecure = true: needs RACKBUS_ALLOW_INSECURE=1 in the environment`}},
		{name: "only cert", content: "[tls]\ncert = \"c\"", want: []string{`tls: tls.cert and tls.key must be provided together`}},
		{name: "only key", content: "[tls]\nkey = \"k\"\nca = \"a\"", want: []string{`tls: tls.cert and tls.key must be provided together`}},
		{name: "no ca", content: "[tls]\ncert = \"c\"\nkey = \"k\"", want: []string{`tls.ca: tls.ca is required with tls.cert and tls.key`}},
		{name: "no ca although insecure", content: "[tls]\ncert = \"c\"\nkey = \"k\"\ninsecure = true", environ: []string{allowInsecure},
			want: []string{`tls.ca: tls.ca is required with tls.cert and tls.key`}},
		{name: "only ca", content: "[tls]\nca = \"a\"", want: []string{`tls.ca = "a": tls.ca requires tls.cert and tls.key`}},
		{name: "no tls at all", process: config.ProcessAPI, content: "[keys]\ndir = \"k\"",
			want: []string{`tls: provide tls.cert, tls.key, and tls.ca for mTLS, or insecure = true for testing`}},

		{name: "gateway id", content: "[switches]\nnmx_gateway_id = \" \"", want: []string{`switches.nmx_gateway_id = " ": must not be blank or whitespace-only`}},
		{name: "test targets without gate", content: "[switches]\nallow_loopback_targets = true\n[switches.test_ports]\nssh = 2222\ngnmi = 9",
			want: []string{
				`switches.allow_loopback_targets = true: needs RACKBUS_ALLOW_INSECURE=1 in the environment`,
				`switches.test_ports.gnmi = 9: needs RACKBUS_ALLOW_INSECURE=1 in the environment`,
				`switches.test_ports.ssh = 2222: needs RACKBUS_ALLOW_INSECURE=1 in the environment`,
			}},
		{name: "no switch directories", process: config.ProcessSwitchAgent,
			content: "[keys]\ndir = \"k\"\n[switches]\nswitch_cert_root = \"/none/a\"\nclient_tls_root = \"/none/b\"\ndefault_switch_domain = \"d\"",
			want:    []string{`switches.switch_cert_root = "/none/a": directory does not exist`, `switches.client_tls_root = "/none/b": directory does not exist`}},
		{name: "root without domain", content: "[switches]\nclient_tls_root = \"/x\"", want: []string{`switches.client_tls_root = "/x": needs switches.default_switch_domain`}},
		{name: "domain is a path", content: "[switches]\ndefault_switch_domain = \"../a\"", want: []string{`switches.default_switch_domain = "../a": must be one folder name`}},
		{name: "domain is a dot", content: "[switches]\ndefault_switch_domain = \"..\"", want: []string{`switches.default_switch_domain = "..": must be one folder name`}},
		{name: "wildcard", content: "[switches]\ndns_domain = \"*.x\"", want: []string{`switches.dns_domain = "*.x": must be a DNS name, without port or wildcard`}},
		{name: "address as name", content: "[switches]\ndns_domain = \"10.0.0.1\"", want: []string{`switches.dns_domain = "10.0.0.1": must be a DNS name, without port or wildcard`}},
		{name: "name with port", content: "[switches]\ndns_domain = \"a:443\"", want: []string{`switches.dns_domain = "a:443": must be a DNS name, without port or wildcard`}},

		{name: "firmware dir", content: "[workflows]\nfirmware_dir = \"\"", want: []string{`workflows.firmware_dir = "": must not be blank`}},
		{name: "zero counts", content: "[workflows]\nsftp_upload_timeout_seconds = 0\nsftp_step_timeout_seconds = 0\nmax_tracked_jobs = 0\nterminal_job_ttl_seconds = -1",
			want: []string{`workflows.sftp_upload_timeout_seconds = 0: must be greater than 0`, `workflows.sftp_step_timeout_seconds = 0: must be greater than 0`,
				`workflows.max_tracked_jobs = 0: must be greater than 0`, `workflows.terminal_job_ttl_seconds = -1: must be greater than 0`}},
		{name: "step above upload", content: "[workflows]\nsftp_upload_timeout_seconds = 10",
			want: []string{`workflows.sftp_step_timeout_seconds = 30: SFTP step timeout must be less than or equal to upload timeout (10)`}},
		{name: "profiles", content: "[workflows.expected_inventory_profiles]\na = []\nb = {}\nc = 1\nd = [\" \"]\ne = { apnames = [] }\nf = { flint_devices = { cx9 = 1, cx7 = -1 } }\n\" g\" = [\"x\"]\ng = [\"x\"]\n\" \" = [\"x\"]",
			want: []string{
				`workflows.expected_inventory_profiles = " ": a profile name must not be blank`,
				`workflows.expected_inventory_profiles.a = []: the list must not be empty`,
				`workflows.expected_inventory_profiles.b: needs ap_names or flint_devices`,
				`workflows.expected_inventory_profiles.c = 1: must be a list of names or a table`,
				`workflows.expected_inventory_profiles.d[0] = " ": must be a name that is not blank`,
				`workflows.expected_inventory_profiles.e.apnames: unknown key, did you mean workflows.expected_inventory_profiles.e.ap_names?`,
				`workflows.expected_inventory_profiles.f.flint_devices.cx7 = -1: must be a count`,
				`workflows.expected_inventory_profiles.f.flint_devices.cx9: unknown key, did you mean workflows.expected_inventory_profiles.f.flint_devices.cx7?`,
				`workflows.expected_inventory_profiles.g = "g": two profiles have this name after trimming`,
			}},

		{name: "links", content: "[diagnostics]\nlink_ttl = \"25h\"\nmax_running = 0",
			want: []string{
				`diagnostics.max_running = 0: must be greater than 0`,
				`diagnostics.link_ttl = "25h": must be at most 24h`,
			}},
		{name: "roles", content: "[auth]\ndefault_role = \"root\"\nviewers = [\"cn:ok\", \"nico\"]\nadmins = [\"spiffe://a/**/b\"]",
			want: []string{
				`auth.default_role = "root": must be none, viewer, operator or admin`,
				`auth.viewers[1] = "nico": access: unusable pattern: it must begin with spiffe://, uri:, dns:, email: or cn:`,
				`auth.admins[0] = "spiffe://a/**/b": access: unusable pattern: ** may only be the last segment of the path of a URI or the first label of a DNS name`,
			}},
		{name: "level", content: "[logging]\nlog_level = \"loud\"", want: []string{`logging.log_level = "loud": must be trace, debug, info, warn, error or off`}},
		{name: "format", content: "[logging]\nformat = \"xml\"", want: []string{`logging.format = "xml": must be logfmt or json`}},

		{name: "no urls", content: "[bus]\nurls = []", want: []string{`bus.urls: must name at least one server`}},
		{name: "bad url keeps its password", content: "[bus]\nurls = [\"http://u:pl4nted@h\"]", want: []string{`bus.urls[0] = "http://XXXX@h": must be a URL such as nats://host:4222`}},
		{name: "replicas", content: "[bus]\nreplicas = 2", want: []string{`bus.replicas = 2: must be 1 or 3`}},
		{name: "two identities", content: "[bus]\nnkey_seed_file = \"a\"\ncreds_file = \"b\"", want: []string{`bus.nkey_seed_file = "a": excludes bus.creds_file`}},
		{name: "half a pair", content: "[bus]\ntls_key = \"a\"", want: []string{`bus: bus.tls_cert and bus.tls_key must be provided together`}},
		{name: "pair without roots", content: "[bus]\ntls_cert = \"a\"\ntls_key = \"b\"", want: []string{`bus.tls_cert = "a": needs bus.tls_ca`}},
		{name: "handshake first", content: "[bus]\ntls_handshake_first = true", want: []string{`bus.tls_handshake_first = true: needs bus.tls_ca`}},

		{name: "keys for nobody", content: "[keys.families_public]\nracks = []\ncompute = [\"rubbish\"]",
			want: []string{`keys.families_public.compute[0] = "rubbish": must be a public curve key (X...)`, `keys.families_public.racks: unknown family; there are compute, switch, powershelf and rack`}},
		{name: "agent without keys", process: config.ProcessComputeAgent, want: []string{`keys.dir: is needed to open credentials`}},
		{name: "api without keys", process: config.ProcessAPI, content: "[tls]\ninsecure = true", environ: []string{allowInsecure},
			want: []string{`keys: keys.dir or keys.families_public is needed to seal credentials`}},

		{name: "job policies", content: "[jobs.on_busy]\nfirmware_updat = \"queue\"\ncold_reboot_sequence = \"wait\"",
			want: []string{`jobs.on_busy.cold_reboot_sequence = "wait": must be refuse, queue or supersede`, `jobs.on_busy.firmware_updat: unknown key, did you mean jobs.on_busy.firmware_update?`}},
		{name: "job deadlines", content: "[jobs]\nqueue_deadline = \"0s\"\nrun_deadline = { reset = \"1h\", firmware_update = \"0s\" }",
			want: []string{`jobs.queue_deadline = "0s": must be greater than 0`, `jobs.run_deadline.firmware_update = "0s": must be greater than 0`, `jobs.run_deadline.reset: unknown key`}},
		{name: "families", content: "[agent]\nfamilies = [\"compute\", \"rack\", \"compute\"]",
			want: []string{`agent.families[1] = "rack": unknown family; there are compute, switch and powershelf`, `agent.families[2] = "compute": named twice`}},

		{name: "duration as number", content: "[timing.redfish]\npower_poll = 5", want: []string{`timing.redfish.power_poll = 5: must be a duration in quotes, such as "30s"`}},
		{name: "duration without unit", environ: []string{"RACKBUS_TIMING__REDFISH__POWER_POLL=5"}, want: []string{`timing.redfish.power_poll = "5": is no duration, such as "30s" or "1h30m"`}},
		{name: "negative duration", content: "[timing.cold_reboot]\ndischarge_floor = \"-1s\"", want: []string{`timing.cold_reboot.discharge_floor = "-1s": must be greater than 0`}},
		{name: "scale", content: "[timing]\nscale = 0", want: []string{`timing.scale = 0: must be greater than 0`}},
		{name: "lease order", content: "[timing.bus]\nsession_ttl = \"2s\"\nwork_interval = \"6s\"\nfold_renew = \"5s\"",
			want: []string{`timing.bus.session_renew = "1.5s": must be less than session_ttl less session_margin (1s)`,
				`timing.bus.work_interval = "6s": must be less than ack_wait (6s)`, `timing.bus.fold_renew = "5s": must be less than fold_ttl (5s)`}},
		{name: "standalone", process: config.ProcessStandalone, content: "[standalone]\ndata_dir = \"\"\nbus_listen = \"4222\"\n[tls]\ninsecure = true", environ: []string{allowInsecure},
			want: []string{`standalone.data_dir = "": must not be blank`, `standalone.bus_listen = "4222": must be host:port`}},
		{name: "bus for everybody", process: config.ProcessStandalone, content: "[standalone]\nbus_listen = \"127.0.0.1:4222\"\n[tls]\ncert = \"c\"\nkey = \"k\"\nca = \"a\"",
			want: []string{`standalone.bus_listen = "127.0.0.1:4222": needs RACKBUS_ALLOW_INSECURE=1 in the environment`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			process := tt.process
			if process == "" {
				process = config.ProcessJobs
			}
			_, err := config.Load(config.Options{Process: process, Path: write(t, tt.content), Environ: tt.environ})
			var faults config.Faults
			require.ErrorAs(t, err, &faults)
			var got []string
			for _, f := range faults {
				got = append(got, config.Faults{f}.Error())
			}
			for _, want := range tt.want {
				require.Contains(t, got, want)
			}
			require.Len(t, got, len(tt.want), "%q", got)
			require.NotContains(t, err.Error(), "pl4nted")
		})
	}
}

// TestAllFaultsTogether: file, environment, flags and rules are reported in one go.
func TestAllFaultsTogether(t *testing.T) {
	_, err := config.Load(config.Options{
		Process: config.ProcessJobs,
		Path:    write(t, "prot = 1\n[bus]\nreplicas = 5"),
		Environ: []string{"RACKBUS_METRICS__PORT=x"},
		Set:     []string{"logging.format=xml", "rubbish"},
	})
	require.EqualError(t, err, `--set = "rubbish": must be KEY=VALUE
metrics.port = "x": must be a whole number from 0 to 65535
prot: unknown key, did you mean port?
logging.format = "xml": must be logfmt or json
bus.replicas = 5: must be 1 or 3`)
}

func TestAgentsNeedNoServerCertificate(t *testing.T) {
	for _, p := range []config.Process{config.ProcessComputeAgent, config.ProcessPowerShelfAgent, config.ProcessSwitchAgent} {
		_, err := config.Load(config.Options{Process: p, Path: write(t, "[keys]\ndir = \"k\"")})
		require.NoError(t, err, p)
	}
}

func TestInsecureSwitchSkipsItsMaterial(t *testing.T) {
	_, err := config.Load(config.Options{Process: config.ProcessSwitchAgent, Path: write(t,
		"[keys]\ndir = \"k\"\n[switches]\ninsecure_switch = true\nswitch_cert_root = \"/none\"\ndefault_switch_domain = \"a/b\"\ndns_domain = \"*\"")})
	require.NoError(t, err)
}
