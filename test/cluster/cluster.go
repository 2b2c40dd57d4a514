// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/certs"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/seal"
	"github.com/rackbus/rackbus/sim"
)

// Roles of processes.
const (
	RoleBroker          = "nats"
	RoleAPI             = "api"
	RoleJobs            = "jobs"
	RoleComputeAgent    = "compute-agent"
	RolePowerShelfAgent = "powershelf-agent"
	RoleSwitchAgent     = "switch-agent"
)

// startLimit is how long a whole cluster may take to become ready.
const startLimit = 60 * time.Second

// Options describe a cluster. The zero value is one of each process and no rack.
type Options struct {
	// Brokers is 1 (the default) or 3.
	Brokers int
	// Replicas of every service; default 1.
	Replicas int
	// Racks are simulated in the test's own process. With switches among them there is an agent for these, and TLS
	// material of SwitchDomain. Switches of several racks need the same ports.
	Racks []sim.Options
	// PlainStore leaves the brokers' stores unencrypted, so that a test can look into them.
	PlainStore bool
	// Settings replaces configuration values by key; the values are in TOML.
	Settings map[string]string
	// Programs is the directory of the programs, empty for those of this tree; see Release.
	Programs string
	// Shipped runs what rackctl bootstrap and deploy/ give: the brokers have the shipped configurations and accounts, and
	// every process its own configuration, certificate and bus user.
	Shipped bool
	// Leaf puts the agents of a shipped cluster at a leaf site.
	Leaf bool
}

// Cluster is a running Rackbus.
type Cluster struct {
	// Racks are the simulated racks.
	Racks []*sim.Rack
	// FirmwareDir is where API and agents find images.
	FirmwareDir string
	// Domain is the TLS material of switches, nil without any.
	Domain *Domain
	// Site is set with Options.Shipped.
	Site *Site

	t       testing.TB
	bin     string
	dir     string
	keys    string
	logs    string
	config  string
	ports   ports
	busURLs []string
	stores  []string
	apis    []string
	// released says that the processes begin with the programs of a release.
	released bool
	// consoles are where the API replicas serve browsers.
	consoles []string

	mu      sync.Mutex
	byRole  map[string][]*Process
	all     []*Process
	clients []*Client
}

// Start starts a cluster, waits until every process is ready, and stops all of it when the test ends. Logs of a failed
// test are kept where -artifacts says.
func Start(t testing.TB, opts Options) *Cluster {
	t.Helper()
	opts.Brokers, opts.Replicas = max(opts.Brokers, 1), max(opts.Replicas, 1)
	bin := opts.Programs
	if bin == "" {
		bin = Programs(t)
	}
	c := &Cluster{t: t, bin: bin, released: opts.Programs != "", dir: t.TempDir(), logs: t.ArtifactDir(), byRole: map[string][]*Process{}}
	c.keys, c.FirmwareDir, c.config = filepath.Join(c.dir, "keys"), filepath.Join(c.dir, "firmware"), filepath.Join(c.dir, "config.toml")
	t.Cleanup(c.close)
	require.NoError(t, os.MkdirAll(c.FirmwareDir, 0o755))
	for _, o := range opts.Racks {
		rack, err := sim.Start(t.Context(), o)
		require.NoError(t, err)
		c.Racks = append(c.Racks, rack)
	}
	if opts.Shipped {
		require.NoError(t, c.bootstrap(opts))
	} else {
		require.NoError(t, seal.WriteKeys(c.keys, node.KeyFamilies()))
		require.NoError(t, seal.EnsureLinkKey(c.keys))
		require.NoError(t, certs.InitCA(c.tlsDir(), nil))
		require.NoError(t, c.addBrokers(opts.Brokers, opts.PlainStore))
	}
	require.NoError(t, c.addServices(opts.Replicas))
	s := c.standard(opts.Brokers)
	if c.hasSwitches() {
		require.NoError(t, c.addSwitches(s, opts.Replicas))
	}
	maps.Copy(s, opts.Settings)
	c.configure(s)
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	for _, p := range c.all {
		require.NoError(t, p.Start())
	}
	for _, p := range c.all {
		require.NoError(t, p.WaitReady(ctx))
	}
	return c
}

// configure gives the settings to all programs of Rackbus: in a file that they share, or beside the files of a site.
func (c *Cluster) configure(s settings) {
	if c.Site == nil {
		require.NoError(c.t, os.WriteFile(c.config, []byte(s.toml()), 0o600))
		return
	}
	for _, p := range c.all {
		if p.Role != RoleBroker {
			p.args = append(p.args, s.overrides()...)
		}
	}
}

func (c *Cluster) tlsDir() string { return filepath.Join(c.keys, "tls") }

func (c *Cluster) certFile(name string) string { return filepath.Join(c.tlsDir(), name) }

// addServices makes the processes of Rackbus itself.
func (c *Cluster) addServices(replicas int) error {
	for _, s := range []service{
		{RoleJobs, programJobs, "jobs"},
		{RoleAPI, programAPI, "api"},
		{RoleComputeAgent, programCompute, "compute-agent"},
		{RolePowerShelfAgent, programPowerShelf, "powershelf-agent"},
	} {
		for i := range replicas {
			if err := c.addService(s, i+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// service is a program of Rackbus with the role and the certificate it has.
type service struct{ role, program, cert string }

func (c *Cluster) addService(s service, i int) error {
	grpc, err := c.ports.draw(c.t.Context())
	if err != nil {
		return err
	}
	metrics, err := c.ports.draw(c.t.Context())
	if err != nil {
		return err
	}
	args := []string{"--set", fmt.Sprintf("port=%d", grpc), "--set", fmt.Sprintf("metrics.port=%d", metrics)}
	var newer []string
	if s.role == RoleAPI {
		console, err := c.ports.draw(c.t.Context())
		if err != nil {
			return err
		}
		newer = []string{"--set", fmt.Sprintf("console.port=%d", console)}
		c.consoles = append(c.consoles, fmt.Sprintf("https://127.0.0.1:%d", console))
	}
	if c.Site != nil {
		args = c.shippedArgs(s.role, append(args, "--set", "metrics.listen=127.0.0.1"))
	} else {
		args = append(args, "--config", c.config,
			"--set", "bus.tls_cert="+c.certFile(s.cert+".crt"), "--set", "bus.tls_key="+c.certFile(s.cert+".key"))
	}
	if s.role == RoleAPI {
		c.apis = append(c.apis, fmt.Sprintf("127.0.0.1:%d", grpc))
	}
	p, err := c.add(s.role, fmt.Sprintf("%s-%d", s.role, i), s.program, args, fmt.Sprintf("http://127.0.0.1:%d/readyz", metrics))
	if err != nil {
		return err
	}
	p.newer = newer
	if !c.released {
		p.UsePrograms(c.bin)
	}
	return nil
}

func (c *Cluster) add(role, name, program string, args []string, ready string) (*Process, error) {
	log, err := openLog(filepath.Join(c.logs, name+".log"))
	if err != nil {
		return nil, err
	}
	p := &Process{Name: name, Role: role, path: filepath.Join(c.bin, program), args: args, log: log, ready: ready}
	c.byRole[role] = append(c.byRole[role], p)
	c.all = append(c.all, p)
	return p, nil
}

// Processes returns the replicas of a role.
func (c *Cluster) Processes(role string) []*Process { return c.byRole[role] }

// All returns every process, brokers first.
func (c *Cluster) All() []*Process { return c.all }

// StoreDirs returns the directories in which the brokers keep everything.
func (c *Cluster) StoreDirs() []string { return c.stores }

// MetricsURL is where a process of Rackbus answers /metrics.
func (c *Cluster) MetricsURL(p *Process) string {
	return p.ready[:len(p.ready)-len("/readyz")] + "/metrics"
}

// ConsoleURL is where the i-th API replica serves browsers, counted from 0.
func (c *Cluster) ConsoleURL(i int) string { return c.consoles[i] }

// Certificate returns the PEM file of a role's certificate, of its key, or of their authority: "client.crt".
func (c *Cluster) Certificate(file string) string {
	if c.Site != nil {
		return c.Site.Certificate(file)
	}
	return c.certFile(file)
}

// close ends everything and shows the logs of a failed test.
func (c *Cluster) close() {
	for _, client := range c.clients {
		client.close()
	}
	for i := len(c.all) - 1; i >= 0; i-- {
		c.all[i].Kill()
	}
	for _, rack := range c.Racks {
		if err := rack.Close(); err != nil {
			c.t.Errorf("close rack %s: %v", rack.ID(), err)
		}
	}
	for _, p := range c.all {
		if c.t.Failed() {
			c.t.Logf("--- end of the log of %s (%s)\n%s", p.Name, p.log.Path, p.log.Tail(logTail))
		}
		p.log.close()
	}
}

// logTail is how many lines of each log a failed test shows.
const logTail = 15
