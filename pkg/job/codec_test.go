// SPDX-License-Identifier: Apache-2.0

package job

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

func genInstant(t *rapid.T, label string) time.Time {
	if rapid.Bool().Draw(t, label+" set") {
		return time.Unix(rapid.Int64Range(-1<<33, 1<<35).Draw(t, label), rapid.Int64Range(0, 999999999).Draw(t, label+" ns")).UTC()
	}
	return time.Time{}
}

func genFailure(t *rapid.T) *Failure {
	if !rapid.Bool().Draw(t, "failure set") {
		return nil
	}
	f := &Failure{
		Code: ErrorCode(rapid.IntRange(0, int(codeCount)-1).Draw(t, "code")), FailureCode: FailureCode(rapid.String().Draw(t, "word")),
		Message: rapid.String().Draw(t, "message"), Phase: rapid.String().Draw(t, "phase"),
	}
	if rapid.Bool().Draw(t, "device set") {
		f.Device = &DeviceAnswer{
			MessageID: rapid.String().Draw(t, "message id"), Message: rapid.String().Draw(t, "device message"),
			Severity: rapid.String().Draw(t, "severity"), Resolution: rapid.String().Draw(t, "resolution"),
			HTTPStatus: rapid.Int32().Draw(t, "status"),
		}
	}
	return f
}

func genAnyCancel(t *rapid.T) *Cancel {
	if !rapid.Bool().Draw(t, "cancel set") {
		return nil
	}
	return &Cancel{
		Mode:   CancelMode(rapid.IntRange(0, int(cancelModeCount)-1).Draw(t, "mode")),
		Reason: rapid.String().Draw(t, "reason"), RequestedBy: rapid.String().Draw(t, "by"), RequestedAt: genInstant(t, "requested"),
		Note: rapid.String().Draw(t, "note"),
	}
}

func genAnyStages(t *rapid.T) []Stage {
	var stages []Stage
	for range rapid.IntRange(0, 3).Draw(t, "stages") {
		stages = append(stages, Stage{
			Name: rapid.String().Draw(t, "name"), Description: rapid.String().Draw(t, "description"),
			Status:  StageStatus(rapid.IntRange(0, int(stageStatusCount)-1).Draw(t, "stage status")),
			Message: rapid.String().Draw(t, "message"), StartedAt: genInstant(t, "started"), FinishedAt: genInstant(t, "finished"),
			Uninterruptible: rapid.Bool().Draw(t, "pinned"), StopLimit: time.Duration(rapid.Int64Range(0, 1<<40).Draw(t, "limit")),
			SwitchesPower: rapid.Bool().Draw(t, "switches"),
		})
	}
	return stages
}

func genRecord(t *rapid.T) Record {
	text := func(label string) string { return rapid.String().Draw(t, label) }
	number := func(label string) uint32 { return rapid.Uint32().Draw(t, label) }
	r := Record{
		ID:    genID(t, "id").Child(number("index")),
		Kind:  Kind(rapid.IntRange(0, int(kindCount)-1).Draw(t, "kind")),
		State: State(rapid.IntRange(1, int(stateCount)-1).Draw(t, "state")),
		Type:  Type(text("type")), Name: text("name"), RackID: text("rack"), NodeID: text("node"), Family: text("family"),
		Description: text("description"), Percent: number("percent"), Failure: genFailure(t), ResultJSON: text("result"),
		Stages: genAnyStages(t), Attempt: number("attempt"), Agent: text("agent"),
		Epoch: rapid.Uint64().Draw(t, "epoch"), EventN: rapid.Uint64().Draw(t, "n"),
		CreatedAt: genInstant(t, "created"), StartedAt: genInstant(t, "begun"), UpdatedAt: genInstant(t, "updated"),
		FinishedAt: genInstant(t, "ended"), Deadline: genInstant(t, "deadline"), Cancel: genAnyCancel(t),
		PublicN: rapid.Uint64().Draw(t, "public"), Visible: rapid.Bool().Draw(t, "visible"),
		RackPower: rapid.Bool().Draw(t, "rack power"), Total: number("total"), Admitted: rapid.Bool().Draw(t, "admitted"),
		Counts: Counts{
			Queued: number("c1"), Running: number("c2"), Completed: number("c3"), Failed: number("c4"), Cancelled: number("c5"),
			Terminated: number("c6"), Superseded: number("c7"), TimedOut: number("c8"), AlreadyUpToDate: number("c9"),
		},
	}
	for i := range rapid.Uint32Range(0, 9).Draw(t, "children") {
		r.Children = r.Children.With(i+1, State(rapid.IntRange(0, int(stateCount)-1).Draw(t, "child")))
	}
	for range rapid.IntRange(0, 3).Draw(t, "reserved") {
		r.Reserved = append(r.Reserved, text("reserved node"))
	}
	for range rapid.IntRange(0, 3).Draw(t, "cleanup") {
		r.Cleanup = append(r.Cleanup, text("directory"))
	}
	if rapid.Bool().Draw(t, "waits") {
		r.WaitsFor = genID(t, "waits for")
	}
	if rapid.Bool().Draw(t, "about set") {
		r.About = genID(t, "about")
	}
	r.Diagnostics = genDiagnostics(t)
	r.Rollout = genRollout(t)
	return r
}

func TestRecordRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := genRecord(t)
		data, err := MarshalRecord(r)
		require.NoError(t, err)
		back, err := UnmarshalRecord(data)
		require.NoError(t, err)
		require.Equal(t, r, back)

		cancel, err := CancelFromProto(CancelToProto(r.Cancel))
		require.NoError(t, err)
		require.Equal(t, r.Cancel, cancel)
		stages, err := StagesFromProto(StagesToProto(r.Stages))
		require.NoError(t, err)
		require.Equal(t, r.Stages, stages)
	})
}

func TestEventRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := genRecord(t)
		e := Event{
			Kind: EventKind(rapid.IntRange(0, int(eventKindCount)-1).Draw(t, "event kind")), ID: r.ID,
			RackID: r.RackID, NodeID: r.NodeID, Type: r.Type, Family: r.Family, Epoch: r.Epoch, N: r.EventN,
			Attempt: r.Attempt, Agent: r.Agent, State: State(rapid.IntRange(0, int(stateCount)-1).Draw(t, "outcome")),
			Description: r.Description, Percent: r.Percent, Stages: r.Stages, Failure: r.Failure, ResultJSON: r.ResultJSON,
			At: r.UpdatedAt, StartedAt: r.StartedAt, Deadline: r.Deadline, Total: r.Total, Cancel: r.Cancel,
			CommandSeq: rapid.Uint64().Draw(t, "command"), Diagnostics: r.Diagnostics, Left: r.About, WaitsFor: r.WaitsFor,
		}
		data, err := MarshalEvent(e)
		require.NoError(t, err)
		back, err := UnmarshalEvent(data)
		require.NoError(t, err)
		require.Equal(t, e, back)
	})
}

// TestEveryFieldIsCarried fails when a message gains a field the codec forgets.
func TestEveryFieldIsCarried(t *testing.T) {
	c := &Cancel{Mode: CancelGraceful, Reason: "x", RequestedBy: "x", RequestedAt: t0, Note: "x"}
	f := &Failure{Code: CodeOther, FailureCode: "X", Message: "x", Phase: "x", Device: &DeviceAnswer{"x", "x", "x", "x", 1}}
	s := []Stage{{Name: "x", Description: "x", Status: StageFailed, Message: "x", StartedAt: t0, FinishedAt: t0, Uninterruptible: true, StopLimit: time.Second + 1, SwitchesPower: true}}
	id := testID(3).Child(1)
	r := Record{
		ID: id, Kind: KindLeaf, Type: "x", Name: "x", RackID: "x", NodeID: "x", Family: "x", State: StateFailed,
		Description: "x", Percent: 1, Failure: f, ResultJSON: "x", Stages: s, Attempt: 1, Agent: "x", Epoch: 1, EventN: 1,
		CreatedAt: t0, StartedAt: t0, UpdatedAt: t0, FinishedAt: t0, Deadline: t0, Cancel: c, PublicN: 1, Visible: true,
		Total: 1, Admitted: true, Children: ChildStates{4}, Counts: Counts{1, 1, 1, 1, 1, 1, 1, 1, 1}, Reserved: []string{"x"}, RackPower: true, WaitsFor: id,
		Cleanup: []string{"x"}, About: testID(4), Diagnostics: testDiagnostics(), Rollout: testRollout(),
	}
	e := Event{
		Kind: EventFinished, ID: id, RackID: "x", NodeID: "x", Type: "x", Family: "x", Epoch: 1, N: 1, Attempt: 1, Agent: "x",
		State: StateFailed, Description: "x", Percent: 1, Stages: s, Failure: f, ResultJSON: "x", At: t0, StartedAt: t0,
		Deadline: t0, Total: 1, Cancel: c, CommandSeq: 1, Diagnostics: testDiagnostics(), Left: id, WaitsFor: id,
	}
	tr := Transition{From: StateRunning, To: StateFailed, Description: "x", At: t0, N: 1}
	requireFull(t, RecordToProto(r))
	requireFull(t, EventToProto(e))
	requireFull(t, TransitionToProto(r, tr))
}

// requireFull checks that every field of m, and of the messages in it, is set.
func requireFull(t *testing.T, m proto.Message) {
	t.Helper()
	p := m.ProtoReflect()
	fields := p.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch f.FullName() {
		case "rackbus.v1.JobFailure.retry", "rackbus.v1.JobFailure.advice", "rackbus.v1.JobFailure.runbook":
			continue // of the table, when a job is shown
		}
		require.True(t, p.Has(f) || f.FullName() == "google.protobuf.Timestamp.nanos", "%s is not set", f.FullName())
		switch {
		case f.Message() == nil:
		case f.IsList():
			requireFull(t, p.Get(f).List().Get(0).Message().Interface())
		default:
			requireFull(t, p.Get(f).Message().Interface())
		}
	}
}

// TestFieldsOfLaterVersionsAreKept lets a replica of this version fold a record that a
// later one has written, as during an upgrade.
func TestFieldsOfLaterVersionsAreKept(t *testing.T) {
	later := func(text string) []byte {
		return protowire.AppendString(protowire.AppendTag(nil, 19_999, protowire.BytesType), text)
	}
	spec := leafSpec()
	spec.NodeID, spec.Rollout = "", testRollout()
	m := RecordToProto(NewParent(spec, 2, true))
	m.ProtoReflect().SetUnknown(later("record"))
	m.GetRollout().ProtoReflect().SetUnknown(later("rollout"))
	m.GetRollout().GetPlan().ProtoReflect().SetUnknown(later("plan"))
	data, err := proto.Marshal(m)
	require.NoError(t, err)
	r, err := UnmarshalRecord(data)
	require.NoError(t, err)
	r, _, err = HoldRollout(r, "lunch", "eve", at(60))
	require.NoError(t, err)
	r, c, err := Fold(r, cancelled(CancelGraceful))
	require.NoError(t, err)
	require.True(t, c.Applied())
	data, err = MarshalRecord(r)
	require.NoError(t, err)
	var back rackbusv1.JobRecord
	require.NoError(t, proto.Unmarshal(data, &back))
	require.Equal(t, later("record"), []byte(back.ProtoReflect().GetUnknown()))
	require.Equal(t, later("rollout"), []byte(back.GetRollout().ProtoReflect().GetUnknown()))
	require.Equal(t, later("plan"), []byte(back.GetRollout().GetPlan().ProtoReflect().GetUnknown()))
}

func TestTransitionTellsFailureOnlyAtTheEnd(t *testing.T) {
	r := inState(KindLeaf, StateFailed)
	r.Failure = NewFailure(FailurePanic, "boom")
	require.NotNil(t, TransitionToProto(r, Transition{From: StateRunning, To: StateFailed}).GetFailure())
	require.Nil(t, TransitionToProto(r, Transition{From: StateQueued, To: StateRunning}).GetFailure())
}

func TestCodecRepairsText(t *testing.T) {
	r := NewLeaf(leafSpec())
	r.Failure = NewFailure(FailureBMCRefused, "broken \xff\xfe text")
	data, err := MarshalRecord(r)
	require.NoError(t, err)
	back, err := UnmarshalRecord(data)
	require.NoError(t, err)
	require.Equal(t, "broken \uFFFD text", back.Failure.Message)
}

func TestCodecRefuses(t *testing.T) {
	good := func() *rackbusv1.JobRecord { return RecordToProto(NewChild(testID(3), 1, leafSpec())) }
	for name, spoil := range map[string]func(*rackbusv1.JobRecord){
		"no version":      func(m *rackbusv1.JobRecord) { m.V = 0 },
		"newer version":   func(m *rackbusv1.JobRecord) { m.V = 2 },
		"no id":           func(m *rackbusv1.JobRecord) { m.JobId = "" },
		"bad id":          func(m *rackbusv1.JobRecord) { m.JobId = "x" },
		"no parent":       func(m *rackbusv1.JobRecord) { m.ParentJobId = "" },
		"wrong parent":    func(m *rackbusv1.JobRecord) { m.ParentJobId = testID(4).String() },
		"parent of a top": func(m *rackbusv1.JobRecord) { m.JobId = testID(3).String() },
		"no state":        func(m *rackbusv1.JobRecord) { m.State = 0 },
		"unknown state":   func(m *rackbusv1.JobRecord) { m.State = 11 },
		"negative state":  func(m *rackbusv1.JobRecord) { m.State = -1 },
		"unknown kind":    func(m *rackbusv1.JobRecord) { m.Kind = 77 },
		"unknown code":    func(m *rackbusv1.JobRecord) { m.Failure = &rackbusv1.JobFailure{Code: 99} },
		"unknown cancel":  func(m *rackbusv1.JobRecord) { m.Cancel = &rackbusv1.JobCancel{Mode: 9} },
		"unknown stage":   func(m *rackbusv1.JobRecord) { m.Stages = []*rackbusv1.JobStage{{Status: 9}} },
		"bad waits_for":   func(m *rackbusv1.JobRecord) { m.WaitsFor = "x" },
		"bad child state": func(m *rackbusv1.JobRecord) { m.Children = []byte{0xb1} },
		"bad about":       func(m *rackbusv1.JobRecord) { m.AboutJobId = "x" },
		"no rollout plan": func(m *rackbusv1.JobRecord) { m.Rollout = &rackbusv1.Rollout{State: 1} },
		"unknown collector": func(m *rackbusv1.JobRecord) {
			m.NodeDiagnostics = &rackbusv1.NodeDiagnostics{Collectors: []*rackbusv1.CollectorOutcome{{Status: 9}}}
		},
		"too many children": func(m *rackbusv1.JobRecord) { m.Children = make([]byte, MaxChildren/2+1) },
	} {
		t.Run(name, func(t *testing.T) {
			m := good()
			spoil(m)
			data, err := proto.Marshal(m)
			require.NoError(t, err)
			r, err := UnmarshalRecord(data)
			require.ErrorIs(t, err, ErrMalformed)
			require.Equal(t, Record{}, r)
		})
	}
	_, err := UnmarshalRecord([]byte{0xff})
	require.ErrorIs(t, err, ErrMalformed)
	_, err = UnmarshalEvent([]byte{0xff})
	require.ErrorIs(t, err, ErrMalformed)
	_, err = EventFromProto(&rackbusv1.JobEvent{V: 1, JobId: testID(3).String(), Kind: 99})
	require.ErrorIs(t, err, ErrMalformed)
	var invalid *InvalidIDError
	_, err = EventFromProto(&rackbusv1.JobEvent{V: 1, JobId: "x"})
	require.ErrorAs(t, err, &invalid)
}

func FuzzUnmarshalRecord(f *testing.F) {
	data, err := MarshalRecord(NewParent(parentSpec(), 3, true))
	require.NoError(f, err)
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := UnmarshalRecord(data)
		if err != nil {
			require.ErrorIs(t, err, ErrMalformed)
			return
		}
		again, err := MarshalRecord(r)
		require.NoError(t, err)
		back, err := UnmarshalRecord(again)
		require.NoError(t, err)
		require.Equal(t, r, back)
	})
}
