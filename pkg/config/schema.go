// SPDX-License-Identifier: Apache-2.0

package config

import "time"

// Config is the configuration of every process. Each reads the sections it
// needs and the shared ones.
type Config struct {
	// TCP port of the gRPC listener.
	Port uint16 `koanf:"port"`
	// Address the gRPC and metrics listeners bind to.
	Listen string `koanf:"listen"`

	Metrics    Metrics    `koanf:"metrics"`
	TLS        TLS        `koanf:"tls"`
	Switches   Switches   `koanf:"switches"`
	Workflows  Workflows  `koanf:"workflows"`
	Artifacts  Artifacts  `koanf:"artifacts"`
	Logging    Logging    `koanf:"logging"`
	Bus        Bus        `koanf:"bus"`
	Keys       Keys       `koanf:"keys"`
	API        API        `koanf:"api"`
	Jobs       Jobs       `koanf:"jobs"`
	Agent      Agent      `koanf:"agent"`
	SSH        SSH        `koanf:"ssh"`
	Validation Validation `koanf:"validation"`
	Standalone Standalone `koanf:"standalone"`
	Auth       Auth       `koanf:"auth"`
	Console    Console    `koanf:"console"`
	Timing     Timing     `koanf:"timing"`

	Diagnostics Diagnostics `koanf:"diagnostics"`
	Tracing     Tracing     `koanf:"tracing"`

	// insecureAllowed is the environment gate for a plaintext listener.
	insecureAllowed bool
}

// Metrics is the listener for metrics and health.
type Metrics struct {
	// Address to listen on; empty is `listen`.
	Listen string `koanf:"listen"`
	// TCP port for /metrics, /healthz and /readyz; 0 takes any free port. Must differ from `port`.
	Port uint16 `koanf:"port"`
	// Serve them over TLS with the certificate of `[tls]`; clients need no certificate.
	TLS bool `koanf:"tls"`
}

// TLS is the material of the gRPC listener: TLS 1.3, client certificates
// required. The files are watched; a changed certificate is used without a restart.
type TLS struct {
	// Certificate file (PEM) of the gRPC listener.
	Cert string `koanf:"cert"`
	// Key file (PEM) of `tls.cert`.
	Key string `koanf:"key"`
	// Roots (PEM) that client certificates must be signed by.
	CA string `koanf:"ca"`
	// Serve plaintext when no certificate is given. For tests only: it also needs RACKBUS_ALLOW_INSECURE=1 in the environment.
	Insecure bool `koanf:"insecure"`
}

// Switches is how NVSwitch trays are reached.
type Switches struct {
	// Directory with one folder per domain whose ca.pem, client.pem and client.key are installed on switches.
	SwitchCertRoot string `koanf:"switch_cert_root"`
	// Directory of the same layout with the client certificates used towards switches. Needs `switches.default_switch_domain`.
	ClientTLSRoot string `koanf:"client_tls_root"`
	// Domain used when a request names none: the name of one folder below the roots.
	DefaultSwitchDomain string `koanf:"default_switch_domain"`
	// TLS server name expected from every switch, in place of its host name or address.
	DNSDomain string `koanf:"dns_domain"`
	// Talk to switches without verifying them and without client certificates. For labs.
	InsecureSwitch bool `koanf:"insecure_switch"`
	// Name this service gives itself towards the NMX controller.
	NMXGatewayID string `koanf:"nmx_gateway_id"`
	// Accept loopback addresses as switch targets. For a simulated rack: it also needs RACKBUS_ALLOW_INSECURE=1 in the environment.
	AllowLoopbackTargets bool `koanf:"allow_loopback_targets"`

	TestPorts SwitchTestPorts `koanf:"test_ports"`
}

// SwitchTestPorts replace the fixed ports of switches, for a simulated rack. 0 is
// the port of real switches; any other also needs RACKBUS_ALLOW_INSECURE=1 in the
// environment. The NVUE port is that of the host endpoint.
type SwitchTestPorts struct {
	// SSH and SFTP, in place of 22.
	SSH uint16 `koanf:"ssh"`
	// The controller of the NVLink fabric, in place of 9370.
	NMXController uint16 `koanf:"nmx_controller"`
	// The telemetry of the fabric, in place of 9352.
	NMXTelemetry uint16 `koanf:"nmx_telemetry"`
	// The gNMI server, in place of 9339.
	GNMI uint16 `koanf:"gnmi"`
}

// Workflows is about firmware files and job records.
type Workflows struct {
	// Directory of firmware files and the download cache; made when missing, must be writable.
	FirmwareDir string `koanf:"firmware_dir"`
	// Where firmware objects keep their artifacts: `dir`, below `workflows.firmware_dir`, which then must be shared by all processes, or `bus`, in the object store of the NATS servers.
	ArtifactStore string `koanf:"artifact_store"`
	// Limit for one upload to a switch, in seconds.
	SFTPUploadTimeoutSeconds int `koanf:"sftp_upload_timeout_seconds"`
	// Limit for one step of such an upload, in seconds; at most the limit for the upload.
	SFTPStepTimeoutSeconds int `koanf:"sftp_step_timeout_seconds"`
	// Jobs kept at a time, running and finished. A batch over N nodes needs N+1.
	MaxTrackedJobs int `koanf:"max_tracked_jobs"`
	// How long a finished job can still be read, in seconds, and up to 1% longer, so that not all of a large number leave together.
	TerminalJobTTLSeconds int `koanf:"terminal_job_ttl_seconds"`
	// Firmware inventory that nodes must show before an update, by profile name: a list of component names, or a table with `ap_names` and `flint_devices` (counts of `cx7`, `cx8`, `bf3_nic`).
	ExpectedInventoryProfiles map[string]InventoryProfile `koanf:"expected_inventory_profiles"`
}

// Artifacts is from where the files of firmware objects may be fetched, and how.
type Artifacts struct {
	// Schemes that may be used: http, https and file.
	Schemes []string `koanf:"schemes"`
	// Hosts that may be contacted, by name or address; `*.example.net` is every host below a domain. Empty is any.
	Hosts []string `koanf:"hosts"`
	// Addresses that may be contacted, as ranges like 10.0.0.0/8. Empty is every public one; private, loopback and link-local ones must be listed.
	Addresses []string `koanf:"addresses"`
	// Follow redirects from http to https. Other changes of the scheme are never followed.
	FollowToHTTPS bool `koanf:"follow_to_https"`
	// Directories below which files may be read. Empty is `workflows.firmware_dir`.
	FileDirs []string `koanf:"file_dirs"`
	// Roots (PEM) that HTTPS servers must be signed by, in place of those of the system.
	TLSCA string `koanf:"tls_ca"`
	// Largest file, in bytes.
	MaxFileBytes int `koanf:"max_file_bytes"`
	// Files of one firmware object.
	MaxFiles int `koanf:"max_files"`
	// All files of one firmware object together, in bytes.
	MaxTotalBytes int `koanf:"max_total_bytes"`
	// Files fetched at the same time by one process.
	MaxConcurrent int `koanf:"max_concurrent"`
	// Limit for connecting, and for TLS once more.
	ConnectTimeout time.Duration `koanf:"connect_timeout"`
	// A download that gets no byte for so long is broken off and tried again.
	StallTimeout time.Duration `koanf:"stall_timeout"`
	// Limit for one file with all tries.
	FileTimeout time.Duration `koanf:"file_timeout"`
	// Tries in a row that may fail without getting any further.
	Attempts int `koanf:"attempts"`
	// With `workflows.artifact_store = "bus"`: what an agent keeps of the files it has used, in bytes.
	CacheBytes int `koanf:"cache_bytes"`
	// How long an agent waits for a file of which nothing is heard.
	WaitTimeout time.Duration `koanf:"wait_timeout"`
}

// Logging is the log on standard output.
type Logging struct {
	// Least level that is logged: trace, debug, info, warn, error or off.
	LogLevel string `koanf:"log_level"`
	// Form of the lines: logfmt or json.
	Format string `koanf:"format"`
	// Begin each line with its time.
	EnableTimestamps bool `koanf:"enable_timestamps"`
}

// Bus is the connection to the NATS servers.
type Bus struct {
	// NATS servers to connect to.
	URLs []string `koanf:"urls"`
	// File with the NKEY seed of this process. At most one of this and `bus.creds_file`.
	NKeySeedFile string `koanf:"nkey_seed_file"`
	// NATS credentials file of this process (JWT and seed).
	CredsFile string `koanf:"creds_file"`
	// Client certificate (PEM) towards the servers.
	TLSCert string `koanf:"tls_cert"`
	// Key (PEM) of `bus.tls_cert`.
	TLSKey string `koanf:"tls_key"`
	// Roots (PEM) the servers' certificates must be signed by; set, it turns TLS on.
	TLSCA string `koanf:"tls_ca"`
	// Start TLS before the server speaks; must match the server's `handshake_first`.
	TLSHandshakeFirst bool `koanf:"tls_handshake_first"`
	// Copies of everything stored: 1 for a single server, 3 for a cluster of three.
	Replicas int `koanf:"replicas"`
	// Limit for one attempt to connect.
	ConnectTimeout time.Duration `koanf:"connect_timeout"`
	// Limit for one request to the servers.
	RequestTimeout time.Duration `koanf:"request_timeout"`
}

// Keys are the key pairs with which credentials are sealed for the agents of
// one family.
type Keys struct {
	// Key directory as `rackbus keys init` writes it. Agents read their family's seed there, the jobs service that of `rack`, the API all public keys.
	Dir string `koanf:"dir"`
	// Public keys by family (compute, switch, powershelf, rack), newest first, in place of the files in `keys.dir`.
	FamiliesPublic map[string][]string `koanf:"families_public"`
}

// API is the gRPC service.
type API struct {
	// Nodes of one batch that are asked at the same time.
	BatchParallelism int `koanf:"batch_parallelism"`
	// Offer gRPC server reflection.
	Reflection bool `koanf:"reflection"`
	// How long running calls may end after SIGTERM.
	DrainTimeout time.Duration `koanf:"drain_timeout"`
	// Largest request accepted, in bytes. Manifests of 16 MiB arrive inline.
	MaxRequestBytes int `koanf:"max_request_bytes"`
	// Least pause between HTTP/2 pings of a client; a client that pings more often is disconnected.
	KeepaliveMinTime time.Duration `koanf:"keepalive_min_time"`
}

// Jobs is how jobs wait and how long they may take.
type Jobs struct {
	// What happens when a job meets a busy node, by job type, with `default` for the others: refuse, queue, or supersede (take the place of a job that has not started).
	OnBusy map[string]string `koanf:"on_busy"`
	// How long an accepted job may wait for an agent.
	QueueDeadline time.Duration `koanf:"queue_deadline"`
	// How long a job may wait behind another job of its node.
	ParkedDeadline time.Duration `koanf:"parked_deadline"`
	// How long a batch that starts its nodes in waves may take until the last wave has begun; nodes that were not started by then time out.
	RolloutDeadline time.Duration `koanf:"rollout_deadline"`
	// How long a job may run, by job type.
	RunDeadline map[string]time.Duration `koanf:"run_deadline"`
	// Jobs that may wait behind one node.
	MaxParkedPerNode int `koanf:"max_parked_per_node"`
}

// Agent is the capacity of one agent process.
type Agent struct {
	// Jobs worked on at the same time.
	MaxInFlight int `koanf:"max_in_flight"`
	// Firmware uploads at the same time.
	MaxUploads int `koanf:"max_uploads"`
	// Devices that are read at length for their updates at the same time. Polls of tasks are not counted.
	MaxConnections int `koanf:"max_connections"`
	// Agents in a row that may die over a job without any progress of it before it is given up.
	MaxStuck int `koanf:"max_stuck"`
	// How long jobs may reach their next step after SIGTERM before they are handed back.
	DrainTimeout time.Duration `koanf:"drain_timeout"`
	// Families a standalone process runs agents for.
	Families []string `koanf:"families"`
	// Address and port on which images are offered to devices that only fetch them themselves; used with `image_url`.
	ImageListen string `koanf:"image_listen"`
	// URL below which devices reach that address, for example http://10.0.0.5:8804. Empty refuses updates of such devices.
	ImageURL string `koanf:"image_url"`
}

// SSH is how agents log in to the operating systems of hosts and switches.
type SSH struct {
	// How host keys are checked: trust_on_first_use, strict, or off.
	HostKeyPolicy string `koanf:"host_key_policy"`
	// Host keys in the format of OpenSSH; empty is `.ssh/known_hosts` in the home directory of the process's user.
	KnownHosts string `koanf:"known_hosts"`
	// Families whose devices are also offered algorithms with known weaknesses, which old ones need: compute, switch.
	LegacyFamilies []string `koanf:"legacy_families"`
}

// Validation is the external command that validates compute trays.
type Validation struct {
	// Program and arguments of the validator, one word each; empty for none. Words may hold {job_id}, {rack_id}, {node_id}, {node_type}, {bmc_address}, {bmc_port}, {host_address}, {host_port}, {log_dir}, {work_dir}.
	Command []string `koanf:"command"`
	// Arguments added when a request brings a configuration, which {config_override} stands for.
	OverrideArguments []string `koanf:"override_arguments"`
	// Program and arguments that release a node after its validation; repeated until it succeeds. Empty for none.
	ReleaseCommand []string `koanf:"release_command"`
	// Further variables of both commands: a file of NAME=value lines, sealed with `rackbus keys seal`.
	EnvironmentFile string `koanf:"environment_file"`
	// Directory the commands run in; made when missing.
	WorkDir string `koanf:"work_dir"`
	// Directory in which every job gets one for its output; empty is `logs` in `validation.work_dir`.
	LogDir string `koanf:"log_dir"`
	// Limit for one validation; less than the run deadline of the job.
	Limit time.Duration `koanf:"limit"`
	// Limit for one release.
	ReleaseLimit time.Duration `koanf:"release_limit"`
	// Limit for the one release of a job that is terminated or past its deadline; less than 2m.
	LastReleaseLimit time.Duration `koanf:"last_release_limit"`
	// Pause before a failed release is repeated.
	ReleaseRetry time.Duration `koanf:"release_retry"`
	// Pause between asking a command to stop and killing it.
	KillGrace time.Duration `koanf:"kill_grace"`
	// How much of the output goes into the job's result, in bytes; the log files hold more.
	MaxOutputBytes int `koanf:"max_output_bytes"`
	// Validations of one agent at the same time.
	MaxRunning int `koanf:"max_running"`
}

// Standalone is the process that runs everything, with its own NATS server.
type Standalone struct {
	// Directory of the NATS server's store. The keys are made beside it, in `keys`, unless `keys.dir` is set.
	DataDir string `koanf:"data_dir"`
	// Address on which the NATS server also accepts connections, for example 127.0.0.1:4222; empty for none. It asks for no password and no certificate: whoever reaches it can do everything. For tests only: it also needs RACKBUS_ALLOW_INSECURE=1 in the environment.
	BusListen string `koanf:"bus_listen"`
}
