// SPDX-License-Identifier: Apache-2.0

package diagnostics

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// HistoryFile has the history of the job that a run looks into.
const HistoryFile = "history.json"

// MaxHistory is the most of a job's history that travels in a command, in bytes.
const MaxHistory = 32 << 10

// HistoryEntry is one event as histories show it.
func HistoryEntry(e *bus.StoredEvent) *rackbusv1.JobHistoryEntry {
	return &rackbusv1.JobHistoryEntry{
		Sequence: e.Sequence, At: timestamppb.New(e.At), Kind: e.Kind.String(), State: rackbusv1.JobState(e.State),
		Description: e.Description, Epoch: e.Epoch, Agent: e.Agent, Failure: job.FailureToProto(e.Failure), Percent: e.Percent,
	}
}

// Order is what an agent is told of the job that a run looks into: its history in
// order, of which the oldest entries are left out beyond MaxHistory.
func Order(about job.ID, history History) *rackbusv1.NodeDiagnosis {
	o := &rackbusv1.NodeDiagnosis{}
	if about.IsZero() {
		return o
	}
	o.AboutJobId = about.String()
	events := history.Events
	left, first := MaxHistory, len(events)
	entries := make([]*rackbusv1.JobHistoryEntry, len(events))
	for first > 0 {
		entry := HistoryEntry(&events[first-1])
		if left -= proto.Size(entry); left < 0 {
			break
		}
		first--
		entries[first] = entry
	}
	o.History, o.HistoryOmitted = entries[first:], uint32(history.Omitted+first)
	o.StartedAt, o.PowerActions = startOf(events), powerActions(history)
	return o
}

// startOf returns when the job began to work, nil when it never did.
func startOf(events []bus.StoredEvent) *timestamppb.Timestamp {
	for i := range slices.Backward(events) {
		if at := events[i].StartedAt; !at.IsZero() {
			return timestamppb.New(at)
		}
	}
	return nil
}

// history is the collector of the failed job's history, which the command carries.
type history struct{ order *rackbusv1.NodeDiagnosis }

func (history) Name() string { return "history" }

func (history) Required() bool { return false }

func (h history) Collect(_ context.Context, into Sink) error {
	if h.order.GetAboutJobId() == "" {
		return Skip("the run looks into no job")
	}
	doc := struct {
		JobID   string            `json:"job_id"`
		Omitted uint32            `json:"omitted"`
		Events  []json.RawMessage `json:"events"`
		// PowerActions is when the job switched the power of the node.
		PowerActions []json.RawMessage `json:"power_actions"`
	}{JobID: h.order.GetAboutJobId(), Omitted: h.order.GetHistoryOmitted()}
	var err error
	if doc.Events, err = rawMessages(h.order.GetHistory()); err != nil {
		return err
	}
	if doc.PowerActions, err = rawMessages(h.order.GetPowerActions()); err != nil {
		return err
	}
	return into.JSON(HistoryFile, doc)
}

func rawMessages[M proto.Message](list []M) ([]json.RawMessage, error) {
	out := make([]json.RawMessage, len(list))
	for i, m := range list {
		raw, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
		if err != nil {
			return nil, fmt.Errorf("encode history: %w", err)
		}
		out[i] = raw
	}
	return out, nil
}
