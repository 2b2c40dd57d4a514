// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

func TestAuditSubjects(t *testing.T) {
	t.Parallel()
	require.Equal(t, "rb.audit.v1.rackbus.v1.Jobs.CancelJob", auditSubject("/rackbus.v1.Jobs/CancelJob"))
	require.Equal(t, "rb.audit.v1.rack_manager.RackManager.a=2Ab", auditSubject("/rack_manager.RackManager/a*b"))
}

// TestAuditNewestFirst writes more than one reading holds, and reads all, a part,
// and up to a moment.
func TestAuditNewestFirst(t *testing.T) {
	t.Parallel()
	c, b := provisioned(t)
	ctx := t.Context()
	read := func(r AuditRange, most int) (ids []string) {
		require.NoError(t, c.AuditRecords(ctx, r, func(a *rackbusv1.AuditRecord) bool {
			ids = append(ids, fmt.Sprintf("%s@%d", a.GetIdentity(), a.GetSequence()))
			return len(ids) < most
		}))
		return ids
	}
	require.Empty(t, read(AuditRange{}, 10))
	const n = 2*auditWindow + 5
	var middle time.Time
	for i := range n {
		if i == n/2 {
			middle = time.Now()
		}
		id := fmt.Sprintf("i%d", i)
		record := &rackbusv1.AuditRecord{V: 1, Identity: id, Rpc: "/rackbus.v1.Jobs/CancelJob"}
		for range 2 { // an answer was lost
			require.NoError(t, c.PutAudit(ctx, id, record))
		}
	}
	all := read(AuditRange{}, n+1)
	require.Len(t, all, n)
	for i, got := range all {
		require.Equal(t, fmt.Sprintf("i%d@%d", n-1-i, n-i), got)
	}
	require.Equal(t, []string{"i9@10", "i8@9"}, read(AuditRange{Before: 11}, 2))
	require.Equal(t, all[n-n/2:], read(AuditRange{Stored: middle}, n))
	require.Empty(t, read(AuditRange{Before: 1}, n))
	require.Equal(t, all, read(AuditRange{Before: 99999, Stored: time.Now().Add(time.Hour)}, n+1))

	// Not even an operator of the broker takes a record away.
	js := rawJetStream(t, b.URL())
	stream, err := js.Stream(ctx, streamAudit)
	require.NoError(t, err)
	require.Error(t, stream.DeleteMsg(ctx, 1))
	require.Error(t, stream.Purge(ctx))

	// What is no record is stepped over.
	_, err = js.Publish(ctx, "rb.audit.v1.x", []byte("\xff\xff"))
	require.NoError(t, err)
	_, err = js.Publish(ctx, probeSubject(streamAudit)+"x", nil)
	require.NoError(t, err)
	require.Equal(t, all[:1], read(AuditRange{}, 1))
}
