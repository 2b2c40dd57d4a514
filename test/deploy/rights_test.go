// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

const (
	someJob  = "125992f1-35c2-4c38-bd0b-f5f800000000"
	aRecord  = "$KV.rb.job.125992f1-35c2-4c38-bd0b-f5f8.00000000"
	aCommand = "rb.cmd.switch.r.switch-0001"
)

// limits are what users must not do: subjects that they publish to, and such that they subscribe to.
type limits struct{ publish, subscribe []string }

// refused is the same for all shapes of a site.
func refused() map[string]limits {
	out := map[string]limits{
		"subscriber": {
			publish: []string{
				"$JS.API.DIRECT.GET.KV_rb", "$JS.API.DIRECT.GET.KV_rb." + aRecord, "$JS.API.STREAM.MSG.GET.KV_rb",
				"$JS.API.STREAM.MSG.GET.RB_AUDIT", "$JS.API.DIRECT.GET.OBJ_rb_evidence.$O.rb_evidence.M.x",
				"$JS.API.CONSUMER.CREATE.KV_rb.x", "$JS.API.CONSUMER.CREATE.RACKBUS_EVENTS.x", "$JS.API.CONSUMER.DELETE.RACKBUS_EVENTS.site",
				"$JS.API.STREAM.DELETE.RACKBUS_EVENTS", "$JS.API.STREAM.PURGE.RACKBUS_EVENTS",
				"rackbus.events.r.n.j.t.completed", "rb.evt.v1.0.r.n.j.finished", aRecord, aCommand, "deliver.ext.x",
			},
			subscribe: []string{">", "$KV.rb.>", "rb.cmd.>", "rackbus.events.>", "_INBOX_api.>", "_INBOX_agent-switch.>"},
		},
		"api": {
			publish: []string{
				"$KV.rb.fold.0", "rb.out.0.1", "rackbus.events.r.n.j.t.completed", "$KV.rb_sess.compute.x", "$KV.rb_sess.fold.0",
				"$O.rb_evidence.M.x", "$JS.API.STREAM.PURGE.OBJ_rb_evidence", "$JS.API.STREAM.CREATE.X", "$JS.API.STREAM.DELETE.KV_rb",
				"$JS.API.STREAM.PURGE.RB_AUDIT", "$JS.API.STREAM.MSG.DELETE.RB_AUDIT", "$JS.API.STREAM.PURGE.RB_EVT",
				"$JS.API.CONSUMER.MSG.NEXT.RACKBUS_EVENTS.site", "$JS.API.CONSUMER.MSG.NEXT.KV_rb.agent-switch",
				"$JS.API.CONSUMER.CREATE.KV_rb.agent-switch", "$JS.API.CONSUMER.DELETE.KV_rb.jobs-timers",
			},
			subscribe: []string{"rb.cmd.>", "rb.req.>", "_INBOX_jobs.>", "$KV.>"},
		},
		"jobs": {
			publish: []string{
				"$KV.rb_inv.node.r.n", "rb.req.compute.firmware_inventory", "rb.audit.v1.x", "$O.rb_evidence.M.x",
				"$JS.API.STREAM.DELETE.KV_rb", "$JS.API.STREAM.UPDATE.KV_rb", "$JS.API.STREAM.PURGE.RB_AUDIT",
				"$JS.API.STREAM.MSG.GET.RB_AUDIT", "$JS.API.CONSUMER.MSG.NEXT.KV_rb.agent-compute",
				"$JS.API.CONSUMER.DELETE.KV_rb.agent-switch",
			},
			subscribe: []string{"rb.cmd.>", "rb.req.>", "rb.ctl.compute.>", "_INBOX_api.>"},
		},
		"ext": {
			publish: []string{
				"rackbus.events.r.n.j.t.completed", "JS.rackbus.api.CONSUMER.CREATE.RACKBUS_EVENTS.x", "$JS.API.STREAM.CREATE.X",
				"$JS.API.STREAM.DELETE.SITE_EVENTS", "site.events.r.n.j.t",
			},
			subscribe: []string{">", "deliver.ext.>", "site.events.>"},
		},
	}
	for _, family := range []string{"compute", "powershelf", "switch"} {
		other := map[string]string{"compute": "switch", "powershelf": "compute", "switch": "powershelf"}[family]
		out["agent-"+family] = limits{
			publish: []string{
				"rb.cmd." + family + ".r.n", "rb.cmd." + other + ".r.n", "rb.park.r.n." + someJob, "rb.timer.reap." + someJob,
				aRecord, "$KV.rb.node.r.n", "$KV.rb.cap", "$KV.rb.fold.0", "$KV.rb.gone.x",
				"$KV.rb_ckpt." + other + "." + someJob, "$KV.rb_sess." + other + ".x", "$KV.rb_sess.fold.0", "$KV.rb_inv.node.r.n",
				"$KV.rb_fw.obj.x", "$O.rb_fw.M.x", "$O.rb_fw.C.x", "rackbus.events.r.n.j.t.completed", "rb.audit.v1.x",
				"rb.ctl." + family + ".cancel." + someJob, "rb.req." + other + ".power_set", "_INBOX_api.x", "_INBOX_jobs.x",
				"$JS.API.CONSUMER.MSG.NEXT.KV_rb.agent-" + other, "$JS.API.CONSUMER.CREATE.KV_rb.x",
				"$JS.API.DIRECT.GET.KV_rb." + "rb.cmd." + other + ".r.n", "$JS.API.DIRECT.GET.KV_rb_inv.$KV.rb_inv.node.r.n",
				"$JS.API.DIRECT.GET.OBJ_rb_evidence.$O.rb_evidence.M.x", "$JS.API.STREAM.PURGE.OBJ_rb_evidence",
				"$JS.API.STREAM.DELETE.KV_rb", "$JS.API.STREAM.PURGE.KV_rb", "$JS.API.STREAM.MSG.DELETE.KV_rb",
				"$JS.API.STREAM.MSG.GET.RB_AUDIT",
			},
			subscribe: []string{
				"$KV.rb.>", "rb.cmd.>", "rb.evt.v1.>", "rb.req." + other + ".>", "rb.ctl." + other + ".>", "_INBOX_api.>", "_INBOX_agent-" + other + ".>",
			},
		}
	}
	return out
}

// leaderReads are what agents need of three servers only.
func leaderReads() []string {
	return []string{"$JS.API.STREAM.MSG.GET.KV_rb", "$JS.API.STREAM.MSG.GET.KV_rb_ckpt"}
}

// requireRefused tries everything that the users must not do, and takes the word of the server for each.
func (s *scene) requireRefused(t *testing.T, all map[string]limits) {
	for user, l := range all {
		t.Run(user, func(t *testing.T) {
			said := make(chan error, len(l.publish)+len(l.subscribe))
			nc, err := s.As(user, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { said <- err }))
			require.NoError(t, err)
			defer nc.Close()
			for _, subject := range l.publish {
				require.NoError(t, nc.Publish(subject, []byte("x")))
				requireViolation(t, said, "Publish", subject)
			}
			for _, subject := range l.subscribe {
				_, err := nc.SubscribeSync(subject)
				require.NoError(t, err)
				requireViolation(t, said, "Subscription", subject)
			}
		})
	}
}

func requireViolation(t *testing.T, said <-chan error, what, subject string) {
	t.Helper()
	select {
	case err := <-said:
		require.ErrorIs(t, err, nats.ErrPermissionViolation)
		// A leaf site names what it serves not itself by the hub.
		require.Contains(t, strings.ReplaceAll(err.Error(), "$JS.hub.API.$KV.", "$KV."), what)
		require.Contains(t, strings.NewReplacer("$JS.hub.API.$KV.", "$KV.", "$JS.hub.API.", "$JS.API.").Replace(err.Error()), fmt.Sprintf("%q", subject))
	case <-time.After(refusalPatience):
		t.Fatalf("%s of %s was not refused", what, subject)
	}
}

// requireStrangersStayOut: a certificate of the site alone does not do, and neither does a key alone.
func (s *scene) requireStrangersStayOut(t *testing.T) {
	_, err := s.As("api", func(o *nats.Options) error { o.Nkey, o.SignatureCB = "", nil; return nil })
	require.ErrorIs(t, err, nats.ErrAuthorization)
	_, err = s.As("api", func(o *nats.Options) error { o.TLSConfig.Certificates = nil; return nil })
	require.ErrorContains(t, err, "tls")
}

// requireSubscriberReads: another system reads the public events with the consumer that an operator has made.
func (s *scene) requireSubscriberReads(t *testing.T) {
	ctx := within(t)
	operator, err := s.As("operator")
	require.NoError(t, err)
	defer operator.Close()
	js, err := jetstream.New(operator, jetstream.WithDefaultTimeout(patience))
	require.NoError(t, err)
	_, err = js.CreateConsumer(ctx, "RACKBUS_EVENTS", jetstream.ConsumerConfig{Durable: "site", AckPolicy: jetstream.AckExplicitPolicy})
	require.NoError(t, err)
	requireEvents(ctx, t, s, "subscriber", "RACKBUS_EVENTS", "site", "rackbus.events.r.")
}

func requireEvents(ctx context.Context, t *testing.T, s *scene, user, stream, consumer, subject string) {
	t.Helper()
	nc, err := s.As(user, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { t.Errorf("%s: %v", user, err) }))
	require.NoError(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(patience))
	require.NoError(t, err)
	var events jetstream.Consumer
	if consumer != "" {
		events, err = js.Consumer(ctx, stream, consumer)
	} else {
		events, err = js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy})
	}
	require.NoError(t, err)
	for range 3 {
		m, err := events.Next(jetstream.FetchContext(ctx))
		require.NoError(t, err)
		require.Contains(t, m.Subject(), subject)
		require.True(t, json.Valid(m.Data()), "%s", m.Data())
		require.NoError(t, m.DoubleAck(ctx))
	}
}

// requireOutsiderReads: an outside party reads a copy of the public events in an account of its own.
func (s *scene) requireOutsiderReads(t *testing.T) {
	ctx := within(t)
	operator, err := s.As("ext-operator")
	require.NoError(t, err)
	defer operator.Close()
	js, err := jetstream.New(operator, jetstream.WithDefaultTimeout(patience))
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(shipped, "site-events.json"))
	require.NoError(t, err)
	var stream jetstream.StreamConfig
	require.NoError(t, json.Unmarshal(text, &stream))
	_, err = js.CreateStream(ctx, stream)
	require.NoError(t, err)
	requireEvents(ctx, t, s, "ext", "SITE_EVENTS", "", "site.events.r.")
}
