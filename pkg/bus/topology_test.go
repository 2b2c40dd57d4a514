// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// TestTopology pins every setting on which the mechanism depends. A change here
// makes existing installations refuse to start.
func TestTopology(t *testing.T) {
	t.Parallel()
	type row struct {
		subjects      []string
		perSubject    int64
		maxAge        time.Duration
		duplicates    time.Duration
		atomic, sched bool
		ttl           bool
		markers       time.Duration
		denyDelete    bool
		discard       jetstream.DiscardPolicy
	}
	want := map[string]row{
		"KV_rb": {
			subjects:   []string{"$KV.rb.>", "rb.cmd.>", "rb.park.>", "rb.timer.>", "rb.fire.>", "rb.out.>"},
			perSubject: 1, duplicates: 2 * time.Minute, atomic: true, sched: true, ttl: true,
		},
		"RB_EVT": {
			subjects: []string{"rb.evt.v1.>"}, perSubject: -1, maxAge: 168 * time.Hour, duplicates: 10 * time.Minute,
			atomic: true, denyDelete: true,
		},
		"KV_rb_sess": {
			subjects: []string{"$KV.rb_sess.>"}, perSubject: 1, duplicates: 2 * time.Minute, ttl: true, markers: time.Minute,
		},
		"KV_rb_ckpt": {subjects: []string{"$KV.rb_ckpt.>"}, perSubject: 1, duplicates: 2 * time.Minute, atomic: true, ttl: true},
		"KV_rb_inv":  {subjects: []string{"$KV.rb_inv.>"}, perSubject: 1, duplicates: 2 * time.Minute, atomic: true, ttl: true},
		"KV_rb_fw":   {subjects: []string{"$KV.rb_fw.>"}, perSubject: 1, duplicates: 2 * time.Minute, atomic: true, ttl: true},
		"OBJ_rb_fw": {
			subjects: []string{"$O.rb_fw.C.>", "$O.rb_fw.M.>"}, perSubject: -1, duplicates: 2 * time.Minute,
			discard: jetstream.DiscardNew,
		},
		"OBJ_rb_evidence": {
			subjects: []string{"$O.rb_evidence.C.>", "$O.rb_evidence.M.>"}, perSubject: -1, duplicates: 2 * time.Minute,
			maxAge: 720 * time.Hour,
		},
		"RACKBUS_EVENTS": {
			subjects: []string{"rackbus.events.>"}, perSubject: -1, maxAge: 168 * time.Hour, duplicates: 10 * time.Minute,
			atomic: true, denyDelete: true,
		},
		"RB_AUDIT": {
			subjects: []string{"rb.audit.v1.>"}, perSubject: -1, maxAge: 90 * 24 * time.Hour, duplicates: 10 * time.Minute, denyDelete: true,
		},
		"RB_ADV": {
			subjects: []string{
				"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.KV_rb.>", "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.KV_rb.>",
				"$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.KV_rb",
			},
			perSubject: -1, maxAge: 168 * time.Hour, duplicates: 10 * time.Minute, denyDelete: true,
		},
	}
	for _, replicas := range []int{1, 3} {
		got := streams(replicas)
		require.Len(t, got, len(want))
		for _, s := range got {
			w, ok := want[s.Name]
			require.True(t, ok, s.Name)
			require.Equal(t, w, row{
				s.Subjects, s.MaxMsgsPerSubject, s.MaxAge, s.Duplicates, s.AllowAtomicPublish, s.AllowMsgSchedules,
				s.AllowMsgTTL, s.SubjectDeleteMarkerTTL, s.DenyDelete, s.Discard,
			}, s.Name)
			require.Equal(t, replicas, s.Replicas)
			require.Equal(t, jetstream.FileStorage, s.Storage)
			require.Equal(t, jetstream.LimitsPolicy, s.Retention)
			require.True(t, s.AllowDirect)
		}
	}
	names := map[string]string{}
	for _, c := range consumers(DefaultTiming(1)) {
		names[c.Durable] = c.FilterSubject
		require.Equal(t, -1, c.MaxDeliver, "a command is offered until it is settled")
		require.Empty(t, c.BackOff)
	}
	require.Equal(t, map[string]string{
		"agent-compute": "rb.cmd.compute.>", "agent-switch": "rb.cmd.switch.>", "agent-powershelf": "rb.cmd.powershelf.>",
		"agent-rack": "rb.cmd.rack.>", "jobs-timers": "rb.fire.>",
	}, names)
}
