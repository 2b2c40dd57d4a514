// SPDX-License-Identifier: Apache-2.0

package console

import (
	"time"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// axis is the width of a timeline, in its own units.
const axis = 1000

// bar is where something lies on a timeline, in units of the axis.
type bar struct{ X, Width int }

// span is a stretch of time that a timeline covers.
type span struct{ from, to time.Time }

// take widens the span. An end that is not known is now.
func (s *span) take(from, to, now time.Time) {
	if from.IsZero() {
		return
	}
	if to.IsZero() {
		to = now
	}
	if s.from.IsZero() || from.Before(s.from) {
		s.from = from
	}
	if to.After(s.to) {
		s.to = to
	}
}

// bar returns where a stretch lies, nil when it has not begun. The shortest is still
// to be seen.
func (s span) bar(from, to, now time.Time) *bar {
	if from.IsZero() {
		return nil
	}
	if to.IsZero() {
		to = now
	}
	const least = 4
	all := s.to.Sub(s.from)
	if all <= 0 {
		return &bar{0, axis}
	}
	at := func(t time.Time) int {
		return min(axis, max(0, int(int64(t.Sub(s.from))*axis/int64(all))))
	}
	x := min(at(from), axis-least)
	return &bar{x, max(at(to)-x, least)}
}

// stageRow is one line of a job's timeline.
type stageRow struct {
	*rackbusv1.JobStage
	Bar    *bar
	Offset time.Duration // from the first stage
	Took   time.Duration
}

// Status is the stage's status for people, and its symbol.
func (r stageRow) Status() statusInfo {
	switch r.GetStatus() {
	case rackbusv1.StageStatus_STAGE_STATUS_RUNNING:
		return statusInfo{Status: StatusWorking, Label: "running"}
	case rackbusv1.StageStatus_STAGE_STATUS_COMPLETED:
		return statusInfo{Status: StatusOK, Label: "completed"}
	case rackbusv1.StageStatus_STAGE_STATUS_FAILED:
		return statusInfo{Status: StatusFailed, Label: "failed"}
	case rackbusv1.StageStatus_STAGE_STATUS_SKIPPED:
		return statusInfo{Status: StatusNone, Label: "skipped"}
	default:
		return statusInfo{Status: StatusNone, Label: "not begun"}
	}
}

// Began says whether the stage has a time.
func (r stageRow) Began() bool { return r.Bar != nil }

// stageRows places the stages of a job on one timeline.
func stageRows(stages []*rackbusv1.JobStage, now time.Time) []stageRow {
	var s span
	for _, st := range stages {
		s.take(timeOf(st.GetStartedAt()), timeOf(st.GetFinishedAt()), stageEnd(st, now))
	}
	rows := make([]stageRow, 0, len(stages))
	for _, st := range stages {
		from, to := timeOf(st.GetStartedAt()), timeOf(st.GetFinishedAt())
		end := stageEnd(st, now)
		row := stageRow{JobStage: st, Bar: s.bar(from, to, end)}
		if row.Bar != nil {
			if to.IsZero() {
				to = end
			}
			row.Offset, row.Took = from.Sub(s.from), max(0, to.Sub(from))
		}
		rows = append(rows, row)
	}
	return rows
}

// stageEnd is until when a stage without an end is drawn: a stage that runs until now,
// one that was cut only where it began.
func stageEnd(st *rackbusv1.JobStage, now time.Time) time.Time {
	if st.GetStatus() == rackbusv1.StageStatus_STAGE_STATUS_RUNNING {
		return now
	}
	return timeOf(st.GetStartedAt())
}

// childBars places the children of a batch on one timeline.
func childBars(rows []jobRow, now time.Time) {
	var s span
	for _, r := range rows {
		s.take(timeOf(r.GetStartedAt()), timeOf(r.GetFinishedAt()), now)
	}
	for i := range rows {
		rows[i].Bar = s.bar(timeOf(rows[i].GetStartedAt()), timeOf(rows[i].GetFinishedAt()), now)
	}
}
