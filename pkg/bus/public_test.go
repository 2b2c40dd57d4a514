// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

func transition(id job.ID, n uint64, from, to rackbusv1.JobState) *rackbusv1.JobTransition {
	return &rackbusv1.JobTransition{
		JobId: id.String(), RackId: "rack 1", NodeId: "node-1", Type: "firmware_update", From: from, To: to, N: n,
		Description: "words", At: timestamppb.New(time.Unix(100, 0)),
	}
}

// TestOutboxIsPublishedOnceAndInOrder publishes what two commits have left, one
// of them for the second time.
func TestOutboxIsPublishedOnceAndInOrder(t *testing.T) {
	t.Parallel()
	c, b := provisioned(t)
	a, other := newID(t), newID(t)
	first := []*rackbusv1.JobTransition{
		transition(a, 1, rackbusv1.JobState_JOB_STATE_UNSPECIFIED, rackbusv1.JobState_JOB_STATE_QUEUED),
		transition(a, 2, rackbusv1.JobState_JOB_STATE_QUEUED, rackbusv1.JobState_JOB_STATE_RUNNING),
	}
	failed := transition(a, 3, rackbusv1.JobState_JOB_STATE_RUNNING, rackbusv1.JobState_JOB_STATE_FAILED)
	failed.Failure = job.FailureToProto(&job.Failure{
		Code: job.CodeUnauthenticated, FailureCode: job.FailureBMCAuthFailed, Message: "no", Phase: "login",
		Device: &job.DeviceAnswer{MessageID: "Base.1.0.NoSession"},
	})
	second := []*rackbusv1.JobTransition{
		failed, transition(other, 1, rackbusv1.JobState_JOB_STATE_UNSPECIFIED, rackbusv1.JobState_JOB_STATE_QUEUED),
	}
	tx := c.Begin()
	tx.PutOutbox(1, 10, first)
	tx.SetCursor(1, 10, Absent)
	done, err := tx.Commit(t.Context())
	require.NoError(t, err)
	tx = c.Begin()
	tx.PutOutbox(1, 20, second)
	tx.SetCursor(1, 20, done.Last)
	_, err = tx.Commit(t.Context())
	require.NoError(t, err)

	// A publisher that dies after its first message leaves a part behind.
	m, err := publicMessage(first[0])
	require.NoError(t, err)
	_, err = c.publish(t.Context(), m)
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, c.PublishOutbox(t.Context(), 1))
	}
	require.NoError(t, c.PublishTransitions(t.Context(), second, done.Last+1), "a zombie repeats it")

	events, subjects := publicEvents(t, rawJetStream(t, b.URL()))
	var got []string
	for _, e := range events {
		got = append(got, fmt.Sprintf("%s %d %s>%s", e.JobID, e.N, e.From, e.State))
	}
	require.Equal(t, []string{
		a.String() + " 1 >queued", a.String() + " 2 queued>running", a.String() + " 3 running>failed", other.String() + " 1 >queued",
	}, got)
	require.Equal(t, "rackbus.events.rack=201.node-1."+a.String()+".firmware_update.failed", subjects[2])
	require.Equal(t, &PublicFailure{
		ErrorCode: "Unauthenticated", FailureCode: "BMC_AUTH_FAILED", Message: "no", Phase: "login",
		Device: &PublicAnswer{MessageID: "Base.1.0.NoSession"}, DeviceMessageID: "Base.1.0.NoSession",
	}, events[2].Failure)
	left, err := c.countSubjects(t.Context(), streamState, subjOutPrefix+">")
	require.NoError(t, err)
	require.Zero(t, left)
}

func publicEvents(t *testing.T, js jetstream.JetStream) (events []PublicEvent, subjects []string) {
	t.Helper()
	cons, err := js.OrderedConsumer(t.Context(), streamPublic, jetstream.OrderedConsumerConfig{})
	require.NoError(t, err)
	info, err := cons.Info(t.Context())
	require.NoError(t, err)
	it, err := cons.Messages()
	require.NoError(t, err)
	defer it.Stop()
	for range info.NumPending {
		m, err := it.Next()
		require.NoError(t, err)
		var e PublicEvent
		require.NoError(t, json.Unmarshal(m.Data(), &e))
		require.Equal(t, fmt.Sprintf("%s:%d", e.JobID, e.N), m.Headers().Get("ce-id"))
		for name, want := range map[string]string{
			"ce-specversion": "1.0", "ce-type": "rackbus.job." + e.State + ".v1", "ce-source": "rackbus/jobs",
			"ce-subject": strings.Join(strings.Split(m.Subject(), ".")[2:5], "/"), "ce-time": e.At.Format(time.RFC3339Nano),
			"ce-dataschema": publicEventSchema, "content-type": "application/json",
		} {
			require.Equal(t, want, m.Headers().Get(name), name)
		}
		events, subjects = append(events, e), append(subjects, m.Subject())
	}
	return events, subjects
}

// A change counts as stored only when the broker has it, not while somebody
// else's write of it is under way: its outbox entry would be lost with that.
func TestWriteUnderWayIsNotTakenForStored(t *testing.T) {
	t.Parallel()
	for code, want := range map[int]bool{codeWrongLastSequenceBusy: true, codeWrongLastSequence: false} {
		err := (&apiError{Code: 400, ErrCode: code}).asError("write")
		require.ErrorIs(t, err, ErrConflict)
		require.Equal(t, want, inFlight(err), code)
	}
}

// The published schema has every member of an event, and no other.
func TestPublicEventsAreAsTheSchemaSays(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/events/job-event.v1.schema.json")
	require.NoError(t, err)
	type object struct {
		Required   []string                   `json:"required"`
		Properties map[string]json.RawMessage `json:"properties"`
	}
	var schema struct {
		ID string `json:"$id"`
		object
		Defs map[string]object `json:"$defs"`
	}
	require.NoError(t, json.Unmarshal(text, &schema))
	require.Equal(t, publicEventSchema, schema.ID)
	for _, c := range []struct {
		schema object
		value  any
	}{{schema.object, PublicEvent{}}, {schema.Defs["failure"], PublicFailure{}}, {schema.Defs["answer"], PublicAnswer{}}} {
		var members, required []string
		for _, f := range reflect.VisibleFields(reflect.TypeOf(c.value)) {
			name, optional, _ := strings.Cut(f.Tag.Get("json"), ",")
			members = append(members, name)
			if optional == "" {
				required = append(required, name)
			}
		}
		require.ElementsMatch(t, members, slices.Collect(maps.Keys(c.schema.Properties)))
		require.ElementsMatch(t, required, c.schema.Required)
	}
}
