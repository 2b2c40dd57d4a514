// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// RackGuard is a rack's power guard with the revision to expect when it is
// changed in a transaction.
type RackGuard struct {
	*rackbusv1.RackPower
	Revision Revision
}

// Free reports whether the guard can be taken at the given moment. Without a
// deadline it is held until it is released.
func (g RackGuard) Free(now time.Time) bool {
	return g.RackPower == nil || g.GetDeadline() != nil && !now.Before(g.GetDeadline().AsTime())
}

// RackGuard reads a rack's power guard at the leader.
func (c *Conn) RackGuard(ctx context.Context, rackID string) (RackGuard, error) {
	v := &rackbusv1.RackPower{}
	rev, err := c.getProto(ctx, streamState, rackPowerSubject(rackID), v)
	if errors.Is(err, ErrNotFound) {
		return RackGuard{Revision: rev}, nil
	}
	return RackGuard{RackPower: v, Revision: rev}, err
}

// HoldRack takes the power guard of a rack until FreeRack.
func (t *Tx) HoldRack(rackID string, v *rackbusv1.RackPower, expect Revision) {
	t.addProto(rackPowerSubject(rackID), v, expecting(expect))
}

// FreeRack releases the power guard of a rack. What it leaves reads as absent.
func (t *Tx) FreeRack(rackID string, expect Revision) {
	t.add(newMessage(rackPowerSubject(rackID), nil), expecting(expect), func(m *nats.Msg) {
		m.Header.Set(hdrOperation, "DEL")
		setTTL(m, freeLockTTL)
	})
}
