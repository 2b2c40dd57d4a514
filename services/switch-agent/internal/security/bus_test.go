// SPDX-License-Identifier: Apache-2.0

package security_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/credentials"
	"github.com/rackbus/rackbus/pkg/failpoint"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/redfishagent/agenttest"
	"github.com/rackbus/rackbus/pkg/seal"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/switch-agent/internal/runbook"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security/certificate"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security/factoryreset"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security/mtls"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security/password"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security/securitytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const planted = "Pl4nted.New"

// site is a broker with one switch.
type site struct {
	*agenttest.Rig
	bench  *securitytest.Bench
	sealer *seal.Sealer
	log    *slog.Logger
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{Rig: agenttest.New(t, node.FamilySwitch), bench: securitytest.New(t)}
	public, err := seal.LoadPublic(s.KeyDir)
	require.NoError(t, err)
	s.sealer, err = seal.NewSealer(public)
	require.NoError(t, err)
	s.log = slog.New(slog.NewTextHandler(s.bench.Logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return s
}

// start runs an agent until the test ends. With a failpoint, its process dies the
// n-th time it gets there; died is closed then.
func (s *site) start(point string, n int) (died <-chan struct{}) {
	s.T.Helper()
	timing := bus.DefaultTiming(1)
	timing.SessionTTL, timing.SessionRenew, timing.SessionMargin = 3*time.Second, 300*time.Millisecond, 300*time.Millisecond
	timing.AckWait, timing.WorkInterval, timing.NakBusy = time.Second, 300*time.Millisecond, 200*time.Millisecond
	conn, err := bus.Connect(bus.Options{URLs: []string{s.URL()}, Name: "agent", Role: "agent-switch", Replicas: 1, Timing: timing, Logger: s.log})
	require.NoError(s.T, err)
	seeds, err := seal.LoadSeeds(s.KeyDir, node.FamilySwitch)
	require.NoError(s.T, err)
	opener, err := seal.NewOpener(seeds, seal.OpenerOptions{})
	require.NoError(s.T, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.T.Context()))
	dead, points := make(chan struct{}), &failpoint.Points{}
	var once atomic.Bool
	points.Arm(point, n, func() error {
		if once.CompareAndSwap(false, true) {
			close(dead)
			cancel()
			go conn.Close()
		}
		return failpoint.ErrInjected
	})
	a, err := agent.New(agent.Options{
		Conn: conn, Family: node.FamilySwitch, Instance: "agent", Opener: opener, Handlers: s.handlers(),
		ProgressInterval: 20 * time.Millisecond, ParentPause: 20 * time.Millisecond, DrainTimeout: 3 * time.Second,
		CutTimeout: 6 * time.Second, Failpoints: points, Logger: s.log,
	})
	require.NoError(s.T, err)
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	s.T.Cleanup(func() {
		cancel()
		<-done // one that was killed ends with errors
		conn.Close()
	})
	return dead
}

func (s *site) handlers() map[job.Type]agent.Handler {
	b := s.bench
	return map[job.Type]agent.Handler{
		job.TypeSwitchMtlsDisable: mtls.Disable(mtls.Options{Switches: b.Switches, Pause: securitytest.Tick}),
		job.TypeSwitchCertificate: certificate.Install(certificate.Options{Switches: b.Switches, Timing: certificate.Timing{
			HelloTries: 50, HelloPause: securitytest.Tick, VerifyPause: securitytest.Tick,
		}}),
		job.TypeSwitchSystemPasswordUpdate: password.Update(password.Options{Switches: b.Switches, Timing: password.Timing{TryPause: securitytest.Tick}}),
		job.TypeSwitchFactoryDefaultReset: factoryreset.Reset(factoryreset.Options{Switches: b.Switches, Timing: factoryreset.Timing{
			Settle: securitytest.Tick, Poll: securitytest.Tick, Down: time.Second, Limit: securitytest.Patience,
		}}),
	}
}

// admit admits a job with sealed secrets, as the API does.
func (s *site) admit(typ job.Type, secrets proto.Message, operation func(*rackbusv1.JobCommand)) job.ID {
	s.T.Helper()
	b := s.bench
	target := s.Target(agenttest.Device{
		RackID: "rack-1", NodeID: "switch-1", Type: "switch_gb200_nvidia",
		Host: &agenttest.Host{IP: b.Sim.IP(), Port: b.Sim.Ports().NVUE, User: securitytest.User, Password: securitytest.Password},
	})
	target.Bmc = nil
	return s.Admit(target, nil, func(c *rackbusv1.JobCommand) {
		c.Type = string(typ)
		operation(c)
		if secrets == nil {
			return
		}
		session, err := s.sealer.NewSession(node.FamilySwitch)
		require.NoError(s.T, err)
		c.Secrets, err = credentials.SealSecrets(session, c.JobId, secrets)
		require.NoError(s.T, err)
	})
}

// silent looks for secrets in what the broker keeps of a job for others to see: its
// events, the outcome in them, and its checkpoint; and in the logs.
func (s *site) silent(j agenttest.Job, secrets ...string) {
	s.T.Helper()
	ck, _, err := s.Conn.Checkpoint(s.T.Context(), s.Family, j.ID)
	require.NoError(s.T, err)
	texts := map[string]string{"checkpoint": ck.String() + string(ck.GetData()), "logs": s.bench.Logs.String()}
	require.NotEmpty(s.T, j.History)
	for _, e := range j.History {
		told, err := json.Marshal(e)
		require.NoError(s.T, err)
		texts["event "+e.Kind.String()] += string(told)
	}
	for where, text := range texts {
		for _, secret := range secrets {
			require.NotContains(s.T, text, secret, where)
		}
	}
}

func passwords() []string {
	out := []string{planted, securitytest.Password}
	for _, p := range out[:2] {
		out = append(out, base64.StdEncoding.EncodeToString([]byte(p)))
	}
	return out
}

// K7: the agent dies between the change and its saving; another process completes the
// rotation, and no secret is anywhere.
func TestK7PasswordRotationIsTakenOver(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.bench.Provision("nvue")
	died := s.start(agent.FailAfterDeviceChange, 3)
	id := s.admit(job.TypeSwitchSystemPasswordUpdate, &rackbusv1.SwitchPasswordSecrets{Password: planted}, func(c *rackbusv1.JobCommand) {
		c.Operation = &rackbusv1.JobCommand_SwitchPasswordUpdate{SwitchPasswordUpdate: &rackbusv1.SwitchPasswordUpdate{Username: securitytest.User}}
	})
	<-died
	s.start("", 0)
	j := s.Await(id)
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.EqualValues(t, 2, j.Epoch)
	require.Contains(t, j.ResultJSON, "password_update_persisted")
	require.Equal(t, planted, s.bench.Sim.UserPassword(securitytest.User))
	s.silent(j, passwords()...)
}

// The agent dies with the private key on the switch's disk.
func TestCertificateInstallIsTakenOver(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	m := s.bench.Material()
	died := s.start(runbook.FailInStage+"import_material", 1)
	id := s.admit(job.TypeSwitchCertificate, &rackbusv1.SwitchCertificateSecrets{Ca: m.CA, Certificate: m.Certificate, Key: m.Key},
		func(c *rackbusv1.JobCommand) {
			c.Operation = &rackbusv1.JobCommand_SwitchCertificate{SwitchCertificate: &rackbusv1.SwitchCertificate{
				Services: []string{string(security.ServiceNVUE)}, Domain: securitytest.Domain, RunId: "run-1",
				CaCertificateId: "ca-1", EntityCertificateId: "cert-1", TestHello: true,
			}}
		})
	<-died
	require.Contains(t, s.bench.Sim.Files("/home"), "/home/admin/certs/run-1/client.key")
	s.start("", 0)
	j := s.Await(id)
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.NotContains(t, s.bench.Sim.Files("/home"), "/home/admin/certs/run-1/client.key")
	require.Equal(t, "cert-1", s.bench.Sim.SavedConfig("/system/api/certificate"))
	s.silent(j, append(passwords(), strings.Split(string(m.Key), "\n")[1])...)
	// The next job of another kind finds the switch as it is.
	id = s.admit(job.TypeSwitchMtlsDisable, nil, func(c *rackbusv1.JobCommand) {
		c.Operation = &rackbusv1.JobCommand_SwitchMtlsDisable{SwitchMtlsDisable: &rackbusv1.SwitchMtlsDisable{Services: []string{string(security.ServiceNVUE)}}}
	})
	require.Equal(t, job.StateCompleted, s.Await(id).State)
}

// The agent dies behind the reset, which is not sent again.
func TestFactoryResetIsTakenOver(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.bench.Provision("nvue")
	died := s.start(agent.FailAfterDeviceChange, 1)
	id := s.admit(job.TypeSwitchFactoryDefaultReset, nil, func(c *rackbusv1.JobCommand) {
		c.Operation = &rackbusv1.JobCommand_SwitchFactoryReset{SwitchFactoryReset: &rackbusv1.SwitchFactoryReset{}}
	})
	<-died
	s.start("", 0)
	j := s.Await(id)
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Equal(t, 1, s.bench.Sim.FactoryResets())
	s.silent(j, passwords()...)
}
