// SPDX-License-Identifier: Apache-2.0

package switchagent_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/certs"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/switchtls"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	switchagent "github.com/rackbus/rackbus/services/switch-agent"
	"github.com/rackbus/rackbus/sim/nvswitch"
	"github.com/rackbus/rackbus/sim/reqlog"
)

// material is the certificates of one domain, in the form that both sides get.
type material struct {
	b        *bench
	ca       *certs.CA
	settings switchtls.Settings
}

// newMaterial makes a domain with our own identity; the switch has none yet.
func newMaterial(t *testing.T, b *bench) *material {
	t.Helper()
	ca, err := certs.NewCA()
	require.NoError(t, err)
	const domain = "site"
	m := &material{b: b, ca: ca, settings: switchtls.Settings{ClientRoot: t.TempDir(), DefaultDomain: domain}}
	own := m.issue("agent")
	dir := filepath.Join(m.settings.ClientRoot, domain)
	require.NoError(t, os.Mkdir(dir, 0o700))
	for name, content := range map[string][]byte{
		switchtls.FileCA: own.CA, switchtls.FileCertificate: own.Certificate, switchtls.FileKey: own.Key,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	return m
}

func (m *material) issue(role string) nvswitch.Material {
	m.b.t.Helper()
	cert, key, err := m.ca.Issue(certs.Leaf{Role: role, Hosts: []string{m.b.sw.IP()}})
	require.NoError(m.b.t, err)
	return nvswitch.Material{CA: m.ca.PEM(), Certificate: cert, Key: key}
}

// provision gives the switch a certificate of the domain, and makes it ask for ours.
func (m *material) provision() {
	m.b.t.Helper()
	require.NoError(m.b.t, m.b.sw.Provision("earlier", m.issue("switch"), "nvue"))
}

// Without insecure_switch nothing is ever sent to a switch that cannot be verified.
func TestJ7UnverifiedSwitchIsRefused(t *testing.T) {
	b := newBench(t)
	m := newMaterial(t, b)
	b.start(nil, func(o *switchagent.Options) { o.Device.TLS = switchtls.NewStore(m.settings) })

	reply := b.Ask(b.node, switchagent.OpNVOSHello)
	require.Equal(t, "failed_precondition", reply.GetError().GetCode())
	require.Contains(t, reply.GetError().GetMessage(), "no certificate of domain")
	j := b.Await(b.admitImage(b.imageFile("25.02.4440")))
	require.Equal(t, job.FailurePreconditionFailed, j.Failure.FailureCode, "%+v", j.Failure)
	require.Empty(t, b.sw.Requests(reqlog.Filter{Protocol: reqlog.NVUE}), "credentials stay here")

	// With a certificate of the domain the same requests pass, verified both ways.
	m.provision()
	require.Nil(t, b.Ask(b.node, switchagent.OpNVOSHello).GetError())
	j = b.Await(b.admitImage(b.imageFile("25.02.4440")))
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)

	// A domain of which there is no material is no reason to trust another one.
	reply = b.Ask(b.node, switchagent.OpNVOSHello, func(r *rackbusv1.NodeRequest) { r.Domain = "elsewhere" })
	require.Equal(t, "failed_precondition", reply.GetError().GetCode())
}
