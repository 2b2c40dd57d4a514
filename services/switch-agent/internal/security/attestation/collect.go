// SPDX-License-Identifier: Apache-2.0

// Package attestation collects SPDM evidence of one switch: measurements of its
// components, signed with a nonce of the caller, and the certificates to verify them
// with. Nothing is verified or kept here.
package attestation

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rackbus/rackbus/pkg/secret"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
)

const (
	// nonceSize is the length of a nonce, in bytes.
	nonceSize = 32
	// maxDiagnostic bounds the error of a component, in bytes.
	maxDiagnostic = 1024
)

// ErrNonce says that a nonce has not 32 bytes.
var ErrNonce = errors.New("the nonce is not 32 bytes long")

// Timing holds the waits and limits. A zero field takes its default.
type Timing struct {
	// Poll is the gap between looks while a component makes its evidence, Component
	// ends that. 1 s, 60 s.
	Poll      time.Duration
	Component time.Duration
	// Total bounds all components of a switch, whatever the caller's deadline. 15 min.
	Total time.Duration
	// Reply is kept of the caller's time for the answer. 500 ms.
	Reply time.Duration
}

func (t Timing) withDefaults() Timing {
	for _, f := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&t.Poll, time.Second}, {&t.Component, time.Minute}, {&t.Total, 15 * time.Minute}, {&t.Reply, 500 * time.Millisecond},
	} {
		if *f.field <= 0 {
			*f.field = f.value
		}
	}
	return t
}

// Collector collects evidence. It keeps nothing.
type Collector struct{ timing Timing }

// New returns a Collector.
func New(t Timing) *Collector { return &Collector{timing: t.withDefaults()} }

// Collect answers "spdm_evidence" for an opened switch, one component after the
// other, in the order of their ids. The error is that of the switch as a whole: then
// there is no component. What a component failed at is told with it; when the time is
// over, what was collected until then is kept, and the others say so.
func (c *Collector) Collect(ctx context.Context, sw *device.Switch, req *rackbusv1.NodeRequest) (*rackbusv1.NodeReply, error) {
	nonce := req.GetSpdm().GetNonce()
	if len(nonce) != nonceSize {
		return nil, fmt.Errorf("%w: %w", device.ErrTarget, ErrNonce)
	}
	bounded, cancel := context.WithTimeout(ctx, c.timing.Total)
	defer cancel()
	if end, ok := bounded.Deadline(); ok {
		// The answer has to arrive in time as well.
		bounded, cancel = context.WithDeadline(bounded, end.Add(-c.timing.Reply))
		defer cancel()
	}
	if err := sw.Initialize(bounded); err != nil {
		return nil, err
	}
	ids, err := sw.NVUE.EvidenceComponents(bounded)
	if err != nil {
		return nil, err
	}
	text := secret.New(hex.EncodeToString(nonce))
	evidence := &rackbusv1.SpdmEvidence{}
	for _, id := range ids {
		component := c.component(bounded, sw.NVUE, id, text)
		if ctx.Err() != nil && bounded.Err() != nil && errors.Is(ctx.Err(), context.Canceled) {
			return nil, context.Cause(ctx) // nobody waits for it any more
		}
		evidence.Components = append(evidence.Components, component)
	}
	return &rackbusv1.NodeReply{V: 1, SwitchResult: &rackbusv1.NodeReply_SpdmEvidence{SpdmEvidence: evidence}}, nil
}

// component collects the evidence of one component.
func (c *Collector) component(ctx context.Context, client *nvue.Client, id string, nonce secret.Value) *rackbusv1.SpdmComponent {
	out := &rackbusv1.SpdmComponent{ComponentId: id}
	fail := func(err error) *rackbusv1.SpdmComponent {
		text := err.Error()
		if ctx.Err() != nil {
			text = "timeout: the time for the evidence of all components was over"
		}
		return &rackbusv1.SpdmComponent{ComponentId: id, Error: shorten(text)}
	}
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	action, err := client.StartAction(ctx, nvue.GenerateEvidence(id, nonce))
	if err != nil {
		return fail(err)
	}
	wait := nvue.ActionWait{Interval: c.timing.Poll, Limit: c.timing.Component}
	if _, err = client.AwaitAction(ctx, action, nvue.EvidenceActions(), wait); err != nil {
		return fail(err)
	}
	if out.Measurements, err = client.Measurements(ctx, id); err != nil {
		return fail(err)
	}
	if out.CertificateChain, err = client.EvidenceCertificates(ctx, id); err != nil {
		return fail(err)
	}
	return out
}

func shorten(text string) string {
	if len(text) <= maxDiagnostic {
		return text
	}
	return strings.ToValidUTF8(text[:maxDiagnostic], "")
}
