// SPDX-License-Identifier: Apache-2.0

package certificate_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/ssh"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/switch-agent/internal/channel"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/fabric"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nmxc"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security/certificate"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security/securitytest"
	"github.com/rackbus/rackbus/sim/nvswitch"
	"github.com/rackbus/rackbus/sim/reqlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	nvueAPI   = string(security.ServiceNVUE)
	gnmi      = string(security.ServiceGNMI)
	manager   = string(security.ServiceManager)
	telemetry = string(security.ServiceTelemetry)

	run       = "2026-01-02_03-04-05_678"
	caID      = "rms-rack-a-ca-" + run
	certID    = "rms-rack-a-cert-" + run
	directory = "/home/admin/certs/" + run
)

// bench is a switch and the material that a job installs on it.
type bench struct {
	*securitytest.Bench
	material nvswitch.Material
	cmd      *rackbusv1.SwitchCertificate
	services certificate.Services
}

func newBench(t *testing.T, services ...string) *bench {
	return newBenchWith(t, nil, services...)
}

func newBenchWith(t *testing.T, change func(*securitytest.Setup), services ...string) *bench {
	t.Helper()
	b := &bench{Bench: securitytest.New(t, func(s *securitytest.Setup) {
		if change != nil {
			change(s)
		}
	})}
	b.material = b.Material()
	b.cmd = &rackbusv1.SwitchCertificate{
		Services: services, Domain: securitytest.Domain, RunId: run, CaCertificateId: caID, EntityCertificateId: certID,
	}
	// The telemetry interface listens only when it is on.
	b.Sim.SetConfig("/system/gnmi-server", map[string]any{"state": "enabled"})
	return b
}

// fabricSwitch is an opened switch as the fabric steps need it.
type fabricSwitch struct {
	*device.Switch
	own *bench
}

func (s fabricSwitch) Node() node.Ref    { return s.Ref }
func (s fabricSwitch) API() *nvue.Client { return s.NVUE }
func (s fabricSwitch) Insecure() bool    { return false }
func (s fabricSwitch) AppAddress(app string) string {
	if app == nvue.AppTelemetry {
		return s.NMXTelemetry()
	}
	return s.NMXController()
}
func (s fabricSwitch) Controller() (nmxc.Options, error) {
	m, err := s.own.Store.Client("")
	return nmxc.Options{Address: s.NMXController(), Security: channel.Security{Material: m, ServerName: s.ServerName()}}, err
}
func (s fabricSwitch) Shell() (*ssh.Client, error) { return s.SSH() }

func (b *bench) job() securitytest.Job {
	look := fabric.Look{Times: 100, Pause: securitytest.Tick}
	return securitytest.Job{
		Type:    job.TypeSwitchCertificate,
		Command: &rackbusv1.JobCommand{Operation: &rackbusv1.JobCommand_SwitchCertificate{SwitchCertificate: b.cmd}},
		Handler: certificate.Install(certificate.Options{
			Switches: b.Switches,
			Secrets: securitytest.Holding(&rackbusv1.SwitchCertificateSecrets{
				Ca: b.material.CA, Certificate: b.material.Certificate, Key: b.material.Key,
			}),
			Cluster: func(sw *device.Switch) certificate.Cluster {
				return fabric.NewCluster(fabricSwitch{sw, b}, fabric.Timing{
					Converge: look, Ready: look, CertificateSettle: securitytest.Tick, CommandGap: securitytest.Tick, Probe: time.Second,
				})
			},
			Services: b.services,
			Timing: certificate.Timing{
				HelloTries: 20, HelloPause: securitytest.Tick, VerifyTries: 3, VerifyPause: securitytest.Tick,
				Cleanup: 5 * time.Second, UnsetPause: securitytest.Tick,
			},
		}),
	}
}

func (b *bench) install() job.Event { return b.Run(b.job()) }

func result(t *testing.T, e job.Event) map[string]any {
	t.Helper()
	var out map[string]any
	require.NoError(t, json.Unmarshal([]byte(e.ResultJSON), &out))
	return out
}

func stageNames(e job.Event) []string {
	var out []string
	for _, s := range e.Stages {
		out = append(out, s.Name)
	}
	return out
}

func statusOf(e job.Event, stage string) job.StageStatus {
	for _, s := range e.Stages {
		if s.Name == stage {
			return s.Status
		}
	}
	return 0
}

// keys are the files on the switch that hold the private key.
func (b *bench) keys() []string {
	var out []string
	for _, name := range b.Sim.Files("/") {
		content, err := b.Sim.ReadFile(name)
		require.NoError(b.T, err)
		if bytes.Contains(content, bytes.TrimSpace(b.material.Key)) {
			out = append(out, name)
		}
	}
	return out
}

// keySecret is a line of the private key that is in no other file.
func (b *bench) keySecret() string { return strings.Split(string(b.material.Key), "\n")[1] }

// silent checks that the key shows nowhere, and lies nowhere.
func (b *bench) silent(e job.Event) {
	b.T.Helper()
	told, err := json.Marshal(e)
	require.NoError(b.T, err)
	for name, text := range map[string]string{"event": string(told), "result": e.ResultJSON, "logs": b.Logs.String()} {
		require.NotContains(b.T, text, b.keySecret(), name)
		require.NotContains(b.T, text, securitytest.Password, name)
	}
	for _, r := range b.Sim.Requests(reqlog.Filter{}) {
		require.NotContains(b.T, r.Path+r.Query, b.keySecret())
	}
	require.Empty(b.T, b.keys(), "the private key is still on the switch")
}

func (b *bench) completed(e job.Event) map[string]any {
	b.T.Helper()
	require.Equal(b.T, job.StateCompleted, e.State, "%+v", e.Failure)
	b.silent(e)
	r := result(b.T.(*testing.T), e)
	require.Equal(b.T, "completed", r["status"])
	return r
}

func (b *bench) failed(e job.Event, code job.FailureCode) string {
	b.T.Helper()
	require.Equal(b.T, job.StateFailed, e.State)
	require.Equal(b.T, code, e.Failure.FailureCode, e.Failure.Message)
	b.silent(e)
	require.NotContains(b.T, b.Sim.Files("/"), directory)
	for _, name := range b.Sim.Files("/") {
		require.False(b.T, strings.HasPrefix(name, directory), name)
	}
	require.Equal(b.T, "failed", result(b.T.(*testing.T), e)["status"])
	return e.Failure.Message
}

// writes are the requests that could change the switch, by protocol and line.
func (b *bench) writes() []string {
	var out []string
	for _, r := range b.Sim.Requests(reqlog.Filter{Writes: true}) {
		out = append(out, r.Protocol+" "+r.Method+" "+r.Path)
	}
	return out
}

func (b *bench) count(line string) int {
	return len(slices.DeleteFunc(b.writes(), func(w string) bool { return w != line }))
}
