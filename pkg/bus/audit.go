// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// auditWindow is how many records are read at a time. A record names at most 100
// nodes, so that a window stays below some megabytes.
const auditWindow = 200

// auditSubject is where the records of an RPC go, by its full method name.
func auditSubject(rpc string) string {
	tokens := strings.FieldsFunc(rpc, func(r rune) bool { return r == '/' || r == '.' })
	for i, t := range tokens {
		tokens[i] = encodeToken(t)
	}
	return subjAuditPrefix + strings.Join(tokens, ".")
}

// PutAudit stores what a caller has done and returns once the broker has it. id
// identifies the record: stored again within ten minutes it is there once.
func (c *Conn) PutAudit(ctx context.Context, id string, r *rackbusv1.AuditRecord) error {
	data, err := proto.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode audit record: %w", err)
	}
	m := newMessage(auditSubject(r.GetRpc()), data)
	m.Header.Set(hdrMsgID, id)
	_, err = c.publish(ctx, m)
	return err
}

// AuditRange bounds a reading of the audit. The zero one is everything.
type AuditRange struct {
	// Before is a sequence: only what was stored before it.
	Before uint64
	// Stored is a moment: only what was stored before it.
	Stored time.Time
}

// AuditRecords gives records to each, newest first, until each returns false or
// there are no more. What cannot be decoded is left out. A replica that lags may
// miss the newest.
func (c *Conn) AuditRecords(ctx context.Context, r AuditRange, each func(*rackbusv1.AuditRecord) bool) error {
	first, before, err := c.auditBounds(ctx, r)
	if err != nil {
		return err
	}
	for before > first {
		from := max(first, before-min(before, auditWindow))
		window, err := c.directRange(ctx, streamAudit, from, before)
		if err != nil {
			return err
		}
		for _, s := range slices.Backward(window) {
			if strings.HasPrefix(s.subject, probeSubject(streamAudit)) {
				continue
			}
			record := &rackbusv1.AuditRecord{}
			if err := proto.Unmarshal(s.data, record); err != nil {
				c.log.Warn("audit record not decodable", "sequence", uint64(s.rev), "err", err)
				continue
			}
			record.Sequence = uint64(s.rev)
			if !each(record) {
				return nil
			}
		}
		before = from
	}
	return nil
}

// auditBounds returns the first sequence of a range and the one behind its last.
func (c *Conn) auditBounds(ctx context.Context, r AuditRange) (first, before uint64, err error) {
	sctx, cancel := c.requestContext(ctx)
	defer cancel()
	s, err := c.js.Stream(sctx, streamAudit)
	if err != nil {
		return 0, 0, classify("look up stream "+streamAudit, err, false)
	}
	state := s.CachedInfo().State
	first, before = max(state.FirstSeq, 1), state.LastSeq+1
	if r.Before > 0 {
		before = min(before, r.Before)
	}
	if r.Stored.IsZero() {
		return first, before, nil
	}
	later, err := c.directMessages(ctx, streamAudit, map[string]any{"start_time": r.Stored, "batch": 1}, 1)
	if err == nil && len(later) > 0 {
		before = min(before, uint64(later[0].rev))
	}
	return first, before, err
}

// directRange reads the messages of a stream from a sequence on up to but without
// another.
func (c *Conn) directRange(ctx context.Context, stream string, from, before uint64) ([]stored, error) {
	found, err := c.directMessages(ctx, stream, map[string]any{"seq": from, "batch": before - from}, int(before-from))
	// Where sequences are missing the broker goes on behind the range.
	return slices.DeleteFunc(found, func(s stored) bool { return uint64(s.rev) >= before }), err
}

// directMessages asks any replica for several messages, in their order.
func (c *Conn) directMessages(ctx context.Context, stream string, query map[string]any, most int) ([]stored, error) {
	what := "read stream " + stream
	req, err := json.Marshal(query)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	inbox := c.nc.NewRespInbox()
	sub, err := c.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, classify(what, err, false)
	}
	defer func() {
		if err := sub.Unsubscribe(); err != nil {
			c.log.Debug("inbox not released", "stream", stream, "err", err)
		}
	}()
	if err := c.nc.PublishRequest("$JS.API.DIRECT.GET."+stream, inbox, req); err != nil {
		return nil, classify(what, err, false)
	}
	ctx, cancel := c.requestContext(ctx)
	defer cancel()
	out := make([]stored, 0, most)
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return nil, classify(what, err, false)
		}
		switch status := m.Header.Get("Status"); status {
		case "":
			s, err := storedFromDirect(m)
			if err != nil {
				return nil, err
			}
			out = append(out, s)
		case "204", "404":
			return out, nil
		default:
			return nil, fmt.Errorf("%s: %w: status %s %s", what, ErrUnavailable, status, m.Header.Get("Description"))
		}
	}
}
