// SPDX-License-Identifier: Apache-2.0

package fold

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// ids are jobs of different families.
func ids(n int) []job.ID {
	out := make([]job.ID, n)
	for i := range out {
		out[i] = job.ID{byte(i + 1), 0, 0, 0, 0, 0, 0x40, 0, 0x80}
	}
	return out
}

func texts(ids ...job.ID) []string {
	var out []string
	for _, id := range ids {
		out = append(out, id.String())
	}
	return out
}

func TestRelease(t *testing.T) {
	id := ids(5)
	a, b, c, d, e := id[0], id[1], id[2], id[3], id[4]
	at := node.Ref{RackID: "r", NodeID: "n"}
	now := time.Unix(1000, 0)
	cmd := func(id job.ID) *rackbusv1.JobCommand {
		return &rackbusv1.JobCommand{JobId: id.String(), Type: "firmware_update"}
	}
	lock := func(holder job.ID, queue ...job.ID) bus.Lock {
		return bus.Lock{Revision: 7, NodeLock: &rackbusv1.NodeLock{
			V: 1, JobId: holder.String(), Type: "old", Since: timestamppb.New(time.Unix(1, 0)), Queue: texts(queue...),
		}}
	}
	for name, tc := range map[string]struct {
		lock   bus.Lock
		ended  []job.ID
		next   successor
		want   bool
		hold   *rackbusv1.NodeLock
		last   job.ID
		sent   job.ID
		parked []job.ID
	}{
		"the holder ends and nobody waits": {lock: lock(a), ended: []job.ID{a}, want: true, last: a},
		"the holder ends and the next follows": {
			lock: lock(a, b, c), ended: []job.ID{a}, next: successor{id: b, command: cmd(b)}, want: true,
			hold: &rackbusv1.NodeLock{V: 1, JobId: b.String(), Type: "firmware_update", Since: timestamppb.New(now), Queue: texts(c)},
			sent: b, parked: []job.ID{b},
		},
		"the holder ends and the first in line is skipped": {
			lock: lock(a, b, c, d), ended: []job.ID{a}, next: successor{id: c, command: cmd(c), skipped: []job.ID{b}}, want: true,
			hold: &rackbusv1.NodeLock{V: 1, JobId: c.String(), Type: "firmware_update", Since: timestamppb.New(now), Queue: texts(d)},
			sent: c, parked: []job.ID{b, c},
		},
		"the holder ends and all in line are skipped": {
			lock: lock(a, b), ended: []job.ID{a}, next: successor{skipped: []job.ID{b}}, want: true, last: a, parked: []job.ID{b},
		},
		"one in line ends": {
			lock: lock(a, b, c), ended: []job.ID{b}, want: true,
			hold:   &rackbusv1.NodeLock{V: 1, JobId: a.String(), Type: "old", Since: timestamppb.New(time.Unix(1, 0)), Queue: texts(c)},
			parked: []job.ID{b},
		},
		"holder and one in line end together": {
			lock: lock(a, b, c), ended: []job.ID{b, a}, next: successor{id: c, command: cmd(c)}, want: true,
			hold: &rackbusv1.NodeLock{V: 1, JobId: c.String(), Type: "firmware_update", Since: timestamppb.New(now)},
			sent: c, parked: []job.ID{b, c},
		},
		"holder and all in line end together": {
			lock: lock(a, b), ended: []job.ID{a, b}, want: true, last: a, parked: []job.ID{b},
		},
		"a stranger ends":                    {lock: lock(a, b), ended: []job.ID{e}},
		"a job ends on a node never locked":  {lock: bus.Lock{}, ended: []job.ID{a}},
		"a job ends on a node that is free":  {lock: bus.Lock{Revision: 7, NodeLock: &rackbusv1.NodeLock{V: 1, LastJobId: a.String()}}, ended: []job.ID{a}},
		"a job ends beside another's holder": {lock: lock(d), ended: []job.ID{a}},
	} {
		t.Run(name, func(t *testing.T) {
			before := proto.CloneOf(tc.lock.NodeLock)
			got, ok := release(at, tc.lock, tc.ended, tc.next, now)
			require.Equal(t, tc.want, ok)
			require.True(t, proto.Equal(before, tc.lock.NodeLock), "the lock that was read is not written through")
			if !ok {
				return
			}
			require.Equal(t, bus.Revision(7), got.expect)
			require.True(t, proto.Equal(tc.hold, got.hold), "%v", got.hold)
			require.Equal(t, tc.last, got.last)
			require.Equal(t, tc.parked, got.parked)
			if tc.sent.IsZero() {
				require.Nil(t, got.command)
				return
			}
			require.Equal(t, tc.sent.String(), got.command.GetJobId())
		})
	}
}
