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
	Logging    Logging    `koanf:"logging"`
	Bus        Bus        `koanf:"bus"`
	Keys       Keys       `koanf:"keys"`
	API        API        `koanf:"api"`
	Jobs       Jobs       `koanf:"jobs"`
	Agent      Agent      `koanf:"agent"`
	Standalone Standalone `koanf:"standalone"`
	Timing     Timing     `koanf:"timing"`

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
	// Accept loopback addresses as switch targets. For a simulated rack.
	AllowLoopbackTargets bool `koanf:"allow_loopback_targets"`
}

// Workflows is about firmware files and job records.
type Workflows struct {
	// Directory of firmware files and the download cache; made when missing, must be writable.
	FirmwareDir string `koanf:"firmware_dir"`
	// Limit for one upload to a switch, in seconds.
	SFTPUploadTimeoutSeconds int `koanf:"sftp_upload_timeout_seconds"`
	// Limit for one step of such an upload, in seconds; at most the limit for the upload.
	SFTPStepTimeoutSeconds int `koanf:"sftp_step_timeout_seconds"`
	// Jobs kept at a time, running and finished. A batch over N nodes needs N+1.
	MaxTrackedJobs int `koanf:"max_tracked_jobs"`
	// How long a finished job can still be read, in seconds.
	TerminalJobTTLSeconds int `koanf:"terminal_job_ttl_seconds"`
	// Firmware inventory that nodes must show before an update, by profile name: a list of component names, or a table with `ap_names` and `flint_devices` (counts of `cx7`, `cx8`, `bf3_nic`).
	ExpectedInventoryProfiles map[string]InventoryProfile `koanf:"expected_inventory_profiles"`
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
	// Key directory as `rackbus keys init` writes it. Agents read their family's seed there, the API all public keys.
	Dir string `koanf:"dir"`
	// Public keys by family (compute, switch, powershelf), newest first, in place of the files in `keys.dir`.
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
}

// Standalone is the process that runs everything, with its own NATS server.
type Standalone struct {
	// Directory of the NATS server's store. The keys are made beside it, in `keys`, unless `keys.dir` is set.
	DataDir string `koanf:"data_dir"`
	// Address on which the NATS server also accepts connections, for example 127.0.0.1:4222; empty for none.
	BusListen string `koanf:"bus_listen"`
}
