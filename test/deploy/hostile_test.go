// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"crypto/tls"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/certs"
)

// requireHostileSiteContained: a site whose nats-server lets everybody do everything gets no further than its agents may.
func (s *scene) requireHostileSiteContained(t *testing.T) {
	ctx := within(t)
	hub, err := s.As("operator")
	require.NoError(t, err)
	defer hub.Close()
	here := s.hostileSite(t)
	const allowed, probe = "$O.rb_evidence.M.probe", "hostile"
	for _, subject := range []string{
		"rb.cmd.compute.r.hostile", "rb.park.r.hostile." + someJob, "rackbus.events.r.n.j.t.hostile", "rb.audit.v1.hostile",
		"rb.timer.reap." + someJob, "$O.rb_fw.M.hostile", "$JS.hub.API.$KV.rb.node.r.hostile", "$JS.hub.API.$KV.rb_inv.node.r.hostile",
		"$JS.hub.API.STREAM.PURGE.RACKBUS_EVENTS", "$JS.hub.API.STREAM.DELETE.RACKBUS_EVENTS",
	} {
		require.NoError(t, here.Publish(subject, []byte(probe)))
	}
	// What is allowed and comes after all that arrives; so would have the rest.
	require.NoError(t, here.Publish(allowed, []byte(probe)))
	require.NoError(t, here.Flush())
	require.Eventually(t, func() bool {
		data, err := lastMessage(ctx, hub, "OBJ_rb_evidence", allowed)
		return err == nil && string(data) == probe
	}, patience, poll)
	for stream, subjects := range map[string][]string{
		"KV_rb":          {"rb.cmd.compute.r.hostile", "rb.park.r.hostile." + someJob, "$KV.rb.node.r.hostile", "rb.timer.reap." + someJob},
		"RACKBUS_EVENTS": {"rackbus.events.r.n.j.t.hostile"},
		"RB_AUDIT":       {"rb.audit.v1.hostile"},
		"OBJ_rb_fw":      {"$O.rb_fw.M.hostile"},
		"KV_rb_inv":      {"$KV.rb_inv.node.r.hostile"},
	} {
		for _, subject := range subjects {
			_, err := lastMessage(ctx, hub, stream, subject)
			require.ErrorIs(t, err, nats.ErrMsgNotFound, subject)
		}
	}
	// The stream was neither purged nor deleted.
	_, err = lastMessage(ctx, hub, "RACKBUS_EVENTS", "rackbus.events.r.>")
	require.NoError(t, err)
}

// hostileSite is a nats-server with the key of the leaf site and no rules of its own.
func (s *scene) hostileSite(t *testing.T) *nats.Conn {
	t.Helper()
	source, err := certs.Load(certs.Files{
		Cert: s.Site.Certificate("bus-operator.crt"), Key: s.Site.Certificate("bus-operator.key"), CA: s.Site.Certificate("ca.crt"),
	}, certs.Options{})
	require.NoError(t, err)
	certificate, err := source.Certificate()
	require.NoError(t, err)
	roots, err := source.Roots()
	require.NoError(t, err)
	seed, err := os.ReadFile(s.Site.Seed("leaf"))
	require.NoError(t, err)
	hub, err := url.Parse(s.Site.Hub)
	require.NoError(t, err)
	srv, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true, ServerName: "hostile",
		LeafNode: server.LeafNodeOpts{Remotes: []*server.RemoteLeafOpts{{
			URLs: []*url.URL{hub}, Nkey: strings.TrimSpace(string(seed)), TLS: true,
			TLSConfig: &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}, RootCAs: roots},
		}}},
	})
	require.NoError(t, err)
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	require.True(t, srv.ReadyForConnections(patience))
	require.Eventually(t, func() bool { return srv.NumLeafNodes() == 1 }, patience, poll)
	nc, err := nats.Connect(srv.ClientURL())
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return nc
}
