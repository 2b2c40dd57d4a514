// SPDX-License-Identifier: Apache-2.0

package job

import (
	"bytes"
	"encoding/json"
	"errors"
	"time"
)

// ErrTimelineExhausted says that a timeline was driven past its last stage.
var ErrTimelineExhausted = errors.New("stage list exhausted")

// TimelineStage is a stage with what result_json shows beyond a record's Stage.
type TimelineStage struct {
	Stage
	// Details is a JSON object, or nil.
	Details json.RawMessage
}

// Timeline is the ordered stages of one workflow and a cursor that moves through
// them. It is a value: every method leaves its receiver as it was and returns the
// next one. A failing stage keeps the cursor.
type Timeline struct {
	JobID     ID
	StartedAt time.Time
	UpdatedAt time.Time
	Stages    []TimelineStage
	// Cursor is the index of the current stage; len(Stages) when all are through.
	Cursor int
}

// StageName declares one stage of a workflow.
type StageName struct {
	Name          string
	Description   string
	SwitchesPower bool
}

// NewTimeline returns a timeline in which every stage is queued.
func NewTimeline(id ID, stages []StageName, at time.Time) Timeline {
	t := Timeline{JobID: id, StartedAt: at, UpdatedAt: at, Stages: make([]TimelineStage, len(stages))}
	for i, s := range stages {
		t.Stages[i].Stage = Stage{Name: s.Name, Description: s.Description, Status: StageQueued, SwitchesPower: s.SwitchesPower}
	}
	return t
}

// ResumeTimeline returns the timeline that an earlier worker left in stages, with
// the cursor on the first stage that is neither completed nor skipped. Details are
// not part of a Stage and are empty.
func ResumeTimeline(id ID, startedAt time.Time, stages []Stage) Timeline {
	t := Timeline{JobID: id, StartedAt: startedAt, UpdatedAt: startedAt, Stages: make([]TimelineStage, len(stages))}
	for i, s := range stages {
		t.Stages[i].Stage = s
		t.UpdatedAt = later(later(t.UpdatedAt, s.StartedAt), s.FinishedAt)
		if t.Cursor == i && (s.Status == StageCompleted || s.Status == StageSkipped) {
			t.Cursor++
		}
	}
	return t
}

// Current returns the stage under the cursor, and false past the end.
func (t Timeline) Current() (Stage, bool) {
	if t.Cursor < 0 || t.Cursor >= len(t.Stages) {
		return Stage{}, false
	}
	return t.Stages[t.Cursor].Stage, true
}

// Start marks the current stage as running. A stage that is started again keeps
// its first start.
func (t Timeline) Start(at time.Time) (Timeline, error) {
	return t.current(at, func(s *TimelineStage) { s.Status = StageRunning }, 0)
}

// Pin notes that the current stage cannot be left before its end any more, and how
// long it may take until the job can stop; 0 when that is not known.
func (t Timeline) Pin(at time.Time, limit time.Duration) (Timeline, error) {
	return t.current(at, func(s *TimelineStage) { s.Uninterruptible, s.StopLimit = true, limit }, 0)
}

// Complete marks the current stage as completed and moves on. Empty details leave
// those stored before.
func (t Timeline) Complete(at time.Time, details json.RawMessage) (Timeline, error) {
	return t.current(at, func(s *TimelineStage) { s.end(StageCompleted, at, details) }, 1)
}

// Skip marks the current stage as one that had nothing to do and moves on.
func (t Timeline) Skip(at time.Time, details json.RawMessage) (Timeline, error) {
	return t.current(at, func(s *TimelineStage) { s.end(StageSkipped, at, details) }, 1)
}

// Fail marks the current stage as failed; an empty message leaves the one stored.
func (t Timeline) Fail(at time.Time, message string, details json.RawMessage) (Timeline, error) {
	return t.current(at, func(s *TimelineStage) {
		s.end(StageFailed, at, details)
		if message != "" {
			s.Message = message
		}
	}, 0)
}

// SkipRemaining marks every stage from the cursor on that is still queued as
// skipped, without times. The cursor stays.
func (t Timeline) SkipRemaining(at time.Time) Timeline {
	t.Stages = append([]TimelineStage(nil), t.Stages...)
	for i := max(t.Cursor, 0); i < len(t.Stages); i++ {
		if t.Stages[i].Status == StageQueued {
			t.Stages[i].Status = StageSkipped
		}
	}
	t.UpdatedAt = later(t.UpdatedAt, at)
	return t
}

// Visible returns the stages as records and events carry them.
func (t Timeline) Visible() []Stage {
	stages := make([]Stage, len(t.Stages))
	for i := range t.Stages {
		stages[i] = t.Stages[i].Stage
	}
	return stages
}

// current applies change to a copy of the current stage and advances the cursor.
func (t Timeline) current(at time.Time, change func(*TimelineStage), advance int) (Timeline, error) {
	if _, ok := t.Current(); !ok {
		return t, ErrTimelineExhausted
	}
	t.Stages = append([]TimelineStage(nil), t.Stages...)
	s := &t.Stages[t.Cursor]
	if s.StartedAt.IsZero() {
		s.StartedAt = at
	}
	change(s)
	t.Cursor += advance
	t.UpdatedAt = later(t.UpdatedAt, at)
	return t, nil
}

func (s *TimelineStage) end(status StageStatus, at time.Time, details json.RawMessage) {
	s.Status, s.FinishedAt = status, at
	if d := bytes.TrimSpace(details); len(d) > 0 && !bytes.Equal(d, []byte("{}")) && !bytes.Equal(d, []byte("null")) {
		s.Details = details
	}
}

// timelineJSON is the published form of a timeline in result_json.
type timelineJSON struct {
	StartedAtMS     int64       `json:"started_at_ms"`
	UpdatedAtMS     int64       `json:"updated_at_ms"`
	TotalDurationMS int64       `json:"total_duration_ms"`
	CurrentStage    string      `json:"current_stage"`
	StageIndex      int         `json:"stage_index"`
	StageCount      int         `json:"stage_count"`
	Stages          []stageJSON `json:"stages"`
}

type stageJSON struct {
	Name         string          `json:"name"`
	JobID        string          `json:"job_id"`
	Status       string          `json:"status"`
	Description  string          `json:"description"`
	Message      string          `json:"message"`
	StartedAtMS  int64           `json:"started_at_ms"`
	FinishedAtMS int64           `json:"finished_at_ms"`
	DurationMS   int64           `json:"duration_ms"`
	Details      json.RawMessage `json:"details"`
}

// MarshalJSON renders the timeline as result_json publishes it. Times are in
// milliseconds, 0 when unknown; a duration is 0 unless both ends are known.
func (t Timeline) MarshalJSON() ([]byte, error) {
	out := timelineJSON{
		StartedAtMS: millis(t.StartedAt), UpdatedAtMS: millis(t.UpdatedAt),
		TotalDurationMS: span(t.StartedAt, t.UpdatedAt),
		StageIndex:      t.Cursor, StageCount: len(t.Stages),
		Stages: make([]stageJSON, len(t.Stages)),
	}
	id := t.JobID.String()
	for i, s := range t.Stages {
		if s.Status == StageRunning && out.CurrentStage == "" {
			out.CurrentStage = s.Name
		}
		details := s.Details
		if len(details) == 0 {
			details = json.RawMessage("{}")
		}
		out.Stages[i] = stageJSON{
			Name: s.Name, JobID: id, Status: s.Status.String(), Description: s.Description, Message: s.Message,
			StartedAtMS: millis(s.StartedAt), FinishedAtMS: millis(s.FinishedAt),
			DurationMS: span(s.StartedAt, s.FinishedAt), Details: details,
		}
	}
	return json.Marshal(out)
}

func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// span is the time from a to b in milliseconds, 0 unless both are known.
func span(a, b time.Time) int64 {
	if a.IsZero() || b.IsZero() {
		return 0
	}
	return max(b.Sub(a).Milliseconds(), 0)
}
