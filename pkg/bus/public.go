// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// publicEventVersion is the version of the public event's JSON schema, which
// docs/events has. Within a version members are added, never changed or removed.
const publicEventVersion = 1

// publicEventSchema names that schema in the ce-dataschema header.
const publicEventSchema = "urn:rackbus:schema:job-event:v1"

// PublicEvent is one change of a job's state as other systems receive it: the
// JSON body of a CloudEvents 1.0 message in binary mode.
type PublicEvent struct {
	V           int            `json:"v"`
	JobID       string         `json:"job_id"`
	ParentJobID string         `json:"parent_job_id,omitempty"`
	Name        string         `json:"name,omitempty"`
	RackID      string         `json:"rack_id"`
	NodeID      string         `json:"node_id,omitempty"`
	Type        string         `json:"type"`
	From        string         `json:"from,omitempty"`
	State       string         `json:"state"`
	Description string         `json:"description"`
	Failure     *PublicFailure `json:"failure,omitempty"`
	Attempt     uint32         `json:"attempt,omitempty"`
	// N counts the changes of this job from 1.
	N  uint64    `json:"n"`
	At time.Time `json:"at"`
}

// PublicFailure says why a job did not complete.
type PublicFailure struct {
	ErrorCode   string        `json:"error_code"`
	FailureCode string        `json:"failure_code"`
	Message     string        `json:"message"`
	Phase       string        `json:"phase,omitempty"`
	Device      *PublicAnswer `json:"device,omitempty"`
	// DeviceMessageID is Device.MessageID once more, where subscribers had it before
	// there was Device.
	DeviceMessageID string `json:"device_message_id,omitempty"`
}

// PublicAnswer is what a device said when it refused, credentials masked.
type PublicAnswer struct {
	MessageID  string `json:"message_id,omitempty"`
	Message    string `json:"message,omitempty"`
	Severity   string `json:"severity,omitempty"`
	Resolution string `json:"resolution,omitempty"`
	HTTPStatus int32  `json:"http_status,omitempty"`
}

// PublishOutbox copies the state changes that fold commits of a partition left
// behind to the public stream, oldest first, and removes them from the outbox.
// A change that the public stream already has is not stored twice: a job
// enters each state once, so the subject of a change must be new.
func (c *Conn) PublishOutbox(ctx context.Context, partition int) error {
	// No consumer is needed for the few entries there are, and one takes time to
	// come up when a server of the cluster has just died.
	subjects, err := c.listSubjects(ctx, streamState, subjOutPrefix+strconv.Itoa(partition)+".>")
	if err != nil {
		return err
	}
	// The last token is the sequence of the commit's last event, so it counts up.
	slices.SortFunc(subjects, func(a, b string) int { return cmp.Compare(outboxSequence(a), outboxSequence(b)) })
	for _, subject := range subjects {
		// Read one by one: while the public stream is away there may be many, and
		// the first of them fails.
		e, err := c.leaderGet(ctx, streamState, subject)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		var out rackbusv1.JobOutbox
		if err := proto.Unmarshal(e.data, &out); err != nil {
			return fmt.Errorf("decode %s: %w", e.subject, err)
		}
		if err := c.PublishTransitions(ctx, out.GetTransitions(), e.rev); err != nil {
			return err
		}
	}
	return nil
}

func outboxSequence(subject string) uint64 {
	n, err := strconv.ParseUint(subject[strings.LastIndexByte(subject, '.')+1:], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// PublishTransitions stores state changes in the public stream, in order, and
// then removes their outbox entry of the given revision.
func (c *Conn) PublishTransitions(ctx context.Context, transitions []*rackbusv1.JobTransition, entry Revision) error {
	for start := 0; start < len(transitions); start += MaxTxMessages {
		if err := c.publishTransitions(ctx, transitions[start:min(start+MaxTxMessages, len(transitions))]); err != nil {
			return err
		}
	}
	if err := c.eraseMessage(ctx, streamState, entry); err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	return nil
}

func (c *Conn) publishTransitions(ctx context.Context, transitions []*rackbusv1.JobTransition) error {
	msgs := make([]*nats.Msg, 0, len(transitions))
	for _, t := range transitions {
		m, err := publicMessage(t)
		if err != nil {
			return err
		}
		msgs = append(msgs, m)
	}
	_, err := c.commitBatch(ctx, streamPublic, msgs, len(msgs)-1)
	if err == nil || !errors.Is(err, ErrConflict) {
		return err
	}
	// Some of them are stored already: the former publisher died in between.
	for _, t := range transitions {
		m, err := publicMessage(t)
		if err != nil {
			return err
		}
		if _, err := c.publish(ctx, m); err != nil && (!errors.Is(err, ErrConflict) || inFlight(err)) {
			return err
		}
	}
	return nil
}

func publicMessage(t *rackbusv1.JobTransition) (*nats.Msg, error) {
	id, err := job.ParseID(t.GetJobId())
	if err != nil {
		return nil, fmt.Errorf("public event: %w", err)
	}
	e := PublicEvent{
		V: publicEventVersion, JobID: t.GetJobId(), ParentJobID: t.GetParentJobId(), Name: t.GetName(),
		RackID: t.GetRackId(), NodeID: t.GetNodeId(), Type: t.GetType(),
		State: job.State(t.GetTo()).String(), Description: t.GetDescription(),
		Attempt: t.GetAttempt(), N: t.GetN(), At: t.GetAt().AsTime(),
	}
	if from := job.State(t.GetFrom()); from != job.StateUnspecified {
		e.From = from.String()
	}
	if f := t.GetFailure(); f != nil {
		e.Failure = &PublicFailure{
			ErrorCode:   job.ErrorCode(f.GetCode()).String(),
			FailureCode: f.GetFailureCode(), Message: f.GetMessage(), Phase: f.GetPhase(),
		}
		if a := f.GetDevice(); a != nil {
			e.Failure.DeviceMessageID = a.GetMessageId()
			e.Failure.Device = &PublicAnswer{
				MessageID: a.GetMessageId(), Message: a.GetMessage(), Severity: a.GetSeverity(),
				Resolution: a.GetResolution(), HTTPStatus: a.GetHttpStatus(),
			}
		}
	}
	data, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encode public event of job %s: %w", id, err)
	}
	m := newMessage(publicSubject(e.RackID, e.NodeID, id, e.Type, e.State), data)
	m.Header.Set(hdrExpectedLast, "0")
	m.Header.Set("ce-specversion", "1.0")
	m.Header.Set("ce-id", fmt.Sprintf("%s:%d", id, e.N))
	m.Header.Set("ce-type", "rackbus.job."+e.State+".v1")
	m.Header.Set("ce-source", "rackbus/jobs")
	m.Header.Set("ce-dataschema", publicEventSchema)
	m.Header.Set("ce-subject", rackToken(e.RackID)+"/"+nodeToken(e.NodeID)+"/"+id.String())
	m.Header.Set("ce-time", e.At.UTC().Format(time.RFC3339Nano))
	m.Header.Set("content-type", "application/json")
	return m, nil
}
