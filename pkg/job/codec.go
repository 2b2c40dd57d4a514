// SPDX-License-Identifier: Apache-2.0

package job

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// layoutVersion is the version of the record and event layouts written here.
const layoutVersion = 1

// ErrMalformed is wrapped by every decoding error: the bytes or the message are
// not what this version of Rackbus writes.
var ErrMalformed = errors.New("malformed job message")

// MarshalRecord encodes the record for the state stream. Texts that are not UTF-8
// are repaired, so it fails only when r exceeds what protobuf can carry (2 GiB).
func MarshalRecord(r Record) ([]byte, error) {
	data, err := proto.Marshal(RecordToProto(r))
	if err != nil {
		return nil, fmt.Errorf("encode record of job %s: %w", r.ID, err)
	}
	return data, nil
}

// UnmarshalRecord decodes what MarshalRecord wrote. Errors wrap ErrMalformed.
func UnmarshalRecord(data []byte) (Record, error) {
	var m rackbusv1.JobRecord
	if err := proto.Unmarshal(data, &m); err != nil {
		return Record{}, fmt.Errorf("%w: record: %w", ErrMalformed, err)
	}
	return RecordFromProto(&m)
}

// MarshalEvent encodes the event for the event stream, like MarshalRecord.
func MarshalEvent(e Event) ([]byte, error) {
	data, err := proto.Marshal(EventToProto(e))
	if err != nil {
		return nil, fmt.Errorf("encode event of job %s: %w", e.ID, err)
	}
	return data, nil
}

// UnmarshalEvent decodes what MarshalEvent wrote. Errors wrap ErrMalformed.
func UnmarshalEvent(data []byte) (Event, error) {
	var m rackbusv1.JobEvent
	if err := proto.Unmarshal(data, &m); err != nil {
		return Event{}, fmt.Errorf("%w: event: %w", ErrMalformed, err)
	}
	return EventFromProto(&m)
}

// RecordToProto returns the record as a message. The message shares r's bytes.
func RecordToProto(r Record) *rackbusv1.JobRecord {
	m := &rackbusv1.JobRecord{
		V: layoutVersion, JobId: r.ID.String(), ParentJobId: parentText(r.ID), Kind: rackbusv1.JobKind(r.Kind),
		Type: text(string(r.Type)), Name: text(r.Name), RackId: text(r.RackID), NodeId: text(r.NodeID),
		Family: text(r.Family), State: rackbusv1.JobState(r.State), Description: text(r.Description),
		Percent: r.Percent, Failure: FailureToProto(r.Failure), ResultJson: text(r.ResultJSON),
		Stages: StagesToProto(r.Stages), Attempt: r.Attempt, Agent: text(r.Agent), Epoch: r.Epoch, EventN: r.EventN,
		CreatedAt: timestamp(r.CreatedAt), StartedAt: timestamp(r.StartedAt), UpdatedAt: timestamp(r.UpdatedAt),
		FinishedAt: timestamp(r.FinishedAt), Deadline: timestamp(r.Deadline), Cancel: CancelToProto(r.Cancel),
		PublicN: r.PublicN, Visible: r.Visible, Total: r.Total, Admitted: r.Admitted, Children: r.Children,
		Counts: countsToProto(r.Counts), ReservedNodeIds: texts(r.Reserved), RackPower: r.RackPower, WaitsFor: idText(r.WaitsFor),
		Cleanup: cleanupToProto(r.Cleanup), AboutJobId: idText(r.About), NodeDiagnostics: diagnosticsToProto(r.Diagnostics),
		Rollout: rolloutToProto(r.Rollout),
	}
	m.ProtoReflect().SetUnknown(r.unknown)
	return m
}

// RecordFromProto reads a message that RecordToProto made.
func RecordFromProto(m *rackbusv1.JobRecord) (Record, error) {
	d := decoder{what: "record"}
	d.version(m.GetV())
	r := Record{
		ID: d.family(m.GetJobId(), m.GetParentJobId()), Kind: Kind(d.enum("kind", int32(m.GetKind()), int32(kindCount))),
		Type: Type(m.GetType()), Name: m.GetName(), RackID: m.GetRackId(), NodeID: m.GetNodeId(),
		Family: m.GetFamily(), State: d.state(m.GetState()), Description: m.GetDescription(),
		Percent: m.GetPercent(), Failure: d.failure(m.GetFailure()), ResultJSON: m.GetResultJson(),
		Stages: d.stages(m.GetStages()), Attempt: m.GetAttempt(), Agent: m.GetAgent(),
		Epoch: m.GetEpoch(), EventN: m.GetEventN(),
		CreatedAt: instant(m.GetCreatedAt()), StartedAt: instant(m.GetStartedAt()), UpdatedAt: instant(m.GetUpdatedAt()),
		FinishedAt: instant(m.GetFinishedAt()), Deadline: instant(m.GetDeadline()), Cancel: d.cancel(m.GetCancel()),
		PublicN: m.GetPublicN(), Visible: m.GetVisible(), Total: m.GetTotal(), Admitted: m.GetAdmitted(),
		Children: d.children(m.GetChildren()), Counts: countsFromProto(m.GetCounts()),
		WaitsFor: d.optionalID(m.GetWaitsFor()), Cleanup: m.GetCleanup().GetDirectories(),
		Reserved: m.GetReservedNodeIds(), RackPower: m.GetRackPower(),
		About: d.optionalID(m.GetAboutJobId()), Diagnostics: d.diagnostics(m.GetNodeDiagnostics()),
		Rollout: d.rollout(m.GetRollout()), unknown: m.ProtoReflect().GetUnknown(),
	}
	if !r.Exists() {
		d.fail("state is missing")
	}
	if d.err != nil {
		return Record{}, d.err
	}
	return r, nil
}

// EventToProto returns the event as a message.
func EventToProto(e Event) *rackbusv1.JobEvent {
	return &rackbusv1.JobEvent{
		V: layoutVersion, Kind: rackbusv1.JobEventKind(e.Kind), JobId: e.ID.String(), ParentJobId: parentText(e.ID),
		RackId: text(e.RackID), NodeId: text(e.NodeID), Type: text(string(e.Type)), Family: text(e.Family),
		Epoch: e.Epoch, N: e.N, Attempt: e.Attempt, Agent: text(e.Agent), State: rackbusv1.JobState(e.State),
		Description: text(e.Description), Percent: e.Percent, Stages: StagesToProto(e.Stages),
		Failure: FailureToProto(e.Failure), ResultJson: text(e.ResultJSON), At: timestamp(e.At),
		StartedAt: timestamp(e.StartedAt), Deadline: timestamp(e.Deadline), Total: e.Total,
		Cancel: CancelToProto(e.Cancel), CommandSeq: e.CommandSeq, NodeDiagnostics: diagnosticsToProto(e.Diagnostics),
		LeftJobId: idText(e.Left), WaitsFor: idText(e.WaitsFor),
	}
}

// EventFromProto reads a message that EventToProto made.
func EventFromProto(m *rackbusv1.JobEvent) (Event, error) {
	d := decoder{what: "event"}
	d.version(m.GetV())
	e := Event{
		Kind: EventKind(d.enum("kind", int32(m.GetKind()), int32(eventKindCount))),
		ID:   d.family(m.GetJobId(), m.GetParentJobId()), RackID: m.GetRackId(), NodeID: m.GetNodeId(),
		Type: Type(m.GetType()), Family: m.GetFamily(), Epoch: m.GetEpoch(), N: m.GetN(),
		Attempt: m.GetAttempt(), Agent: m.GetAgent(), State: d.state(m.GetState()), Description: m.GetDescription(),
		Percent: m.GetPercent(), Stages: d.stages(m.GetStages()), Failure: d.failure(m.GetFailure()),
		ResultJSON: m.GetResultJson(), At: instant(m.GetAt()), StartedAt: instant(m.GetStartedAt()),
		Deadline: instant(m.GetDeadline()), Total: m.GetTotal(), Cancel: d.cancel(m.GetCancel()),
		CommandSeq: m.GetCommandSeq(), Diagnostics: d.diagnostics(m.GetNodeDiagnostics()),
		Left: d.optionalID(m.GetLeftJobId()), WaitsFor: d.optionalID(m.GetWaitsFor()),
	}
	if d.err != nil {
		return Event{}, d.err
	}
	return e, nil
}

// FailureToProto returns the failure as a message, nil for nil.
func FailureToProto(f *Failure) *rackbusv1.JobFailure {
	if f == nil {
		return nil
	}
	m := &rackbusv1.JobFailure{
		Code: rackbusv1.JobErrorCode(f.Code), FailureCode: text(string(f.FailureCode)),
		Message: text(f.Message), Phase: text(f.Phase),
	}
	if a := f.Device; a != nil {
		m.Device = &rackbusv1.DeviceAnswer{
			MessageId: text(a.MessageID), Message: text(a.Message), Severity: text(a.Severity),
			Resolution: text(a.Resolution), HttpStatus: a.HTTPStatus,
		}
	}
	return m
}

// StagesToProto returns the stages as messages.
func StagesToProto(stages []Stage) []*rackbusv1.JobStage {
	if len(stages) == 0 {
		return nil
	}
	out := make([]*rackbusv1.JobStage, len(stages))
	for i := range stages {
		s := &stages[i]
		out[i] = &rackbusv1.JobStage{
			Name: text(s.Name), Description: text(s.Description), Status: rackbusv1.StageStatus(s.Status),
			Message: text(s.Message), StartedAt: timestamp(s.StartedAt), FinishedAt: timestamp(s.FinishedAt),
			Uninterruptible: s.Uninterruptible, StopLimit: durationMessage(s.StopLimit), SwitchesPower: s.SwitchesPower,
		}
	}
	return out
}

// StagesFromProto reads messages that StagesToProto made.
func StagesFromProto(ms []*rackbusv1.JobStage) ([]Stage, error) {
	d := decoder{what: "stages"}
	return d.stages(ms), d.err
}

// CancelToProto returns the request as a message, nil for nil.
func CancelToProto(c *Cancel) *rackbusv1.JobCancel {
	if c == nil {
		return nil
	}
	return &rackbusv1.JobCancel{
		Mode: rackbusv1.CancelMode(c.Mode), Reason: text(c.Reason), RequestedBy: text(c.RequestedBy),
		RequestedAt: timestamp(c.RequestedAt), Note: text(c.Note),
	}
}

// CancelFromProto reads a message that CancelToProto made, nil for nil.
func CancelFromProto(m *rackbusv1.JobCancel) (*Cancel, error) {
	d := decoder{what: "cancel"}
	return d.cancel(m), d.err
}

// countsToProto returns the counts as a message, nil when all are 0.
func countsToProto(c Counts) *rackbusv1.JobCounts {
	if c == (Counts{}) {
		return nil
	}
	return &rackbusv1.JobCounts{
		Queued: c.Queued, Running: c.Running, Completed: c.Completed, Failed: c.Failed, Cancelled: c.Cancelled,
		Terminated: c.Terminated, Superseded: c.Superseded, TimedOut: c.TimedOut, AlreadyUpToDate: c.AlreadyUpToDate,
	}
}

func countsFromProto(m *rackbusv1.JobCounts) Counts {
	return Counts{
		Queued: m.GetQueued(), Running: m.GetRunning(), Completed: m.GetCompleted(), Failed: m.GetFailed(),
		Cancelled: m.GetCancelled(), Terminated: m.GetTerminated(), Superseded: m.GetSuperseded(),
		TimedOut: m.GetTimedOut(), AlreadyUpToDate: m.GetAlreadyUpToDate(),
	}
}

func cleanupToProto(directories []string) *rackbusv1.JobCleanup {
	if len(directories) == 0 {
		return nil
	}
	return &rackbusv1.JobCleanup{Directories: texts(directories)}
}

// TransitionToProto returns the public form of a transition of r. The failure is
// told with the transition that ends the job.
func TransitionToProto(r Record, t Transition) *rackbusv1.JobTransition {
	m := &rackbusv1.JobTransition{
		JobId: r.ID.String(), ParentJobId: parentText(r.ID), RackId: text(r.RackID), NodeId: text(r.NodeID),
		Type: text(string(r.Type)), Name: text(r.Name), From: rackbusv1.JobState(t.From), To: rackbusv1.JobState(t.To),
		Description: text(t.Description), At: timestamp(t.At), N: t.N, Attempt: r.Attempt,
	}
	if t.To.Terminal() {
		m.Failure = FailureToProto(r.Failure)
	}
	return m
}

// text repairs what is not UTF-8, which devices do send and protobuf refuses.
func text(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

func timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func durationMessage(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

func instant(m *timestamppb.Timestamp) time.Time {
	if m == nil {
		return time.Time{}
	}
	return m.AsTime()
}

// parentText is empty for a top-level job.
func parentText(id ID) string {
	if id.IsTopLevel() {
		return ""
	}
	return id.Parent().String()
}

func idText(id ID) string {
	if id.IsZero() {
		return ""
	}
	return id.String()
}

// texts repairs every text of a list.
func texts(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = text(s)
	}
	return out
}
