// SPDX-License-Identifier: Apache-2.0

package image

import (
	"encoding/json"
	"errors"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
)

// Status words of a result.
const (
	statusSuccess   = "success"
	statusUpToDate  = "already_up_to_date"
	statusFailed    = "failed"
	statusCancelled = "cancelled"
)

// result is the result_json of an image update.
type result struct {
	RackID        string       `json:"rack_id"`
	NodeID        string       `json:"node_id"`
	Filename      string       `json:"image_filename"`
	Target        string       `json:"target_build_id"`
	Status        string       `json:"status"`
	VisibleBefore bool         `json:"image_visible_before_stage"`
	VisibleAfter  bool         `json:"image_visible_after_stage"`
	Timing        job.Timeline `json:"timing_summary"`
	Size          int64        `json:"image_size_bytes,omitempty"`
	InstallID     string       `json:"install_job_id,omitempty"`
	Before        *imageState  `json:"before,omitempty"`
	After         *imageState  `json:"after,omitempty"`
}

// imageState is an image state as results show it.
type imageState struct {
	Current          string `json:"current"`
	Next             string `json:"next"`
	CurrentPartition string `json:"current_partition"`
	NextPartition    string `json:"next_partition"`
	CurrentBuild     string `json:"current_build_id"`
	NextBuild        string `json:"next_build_id"`
	Partition1Build  string `json:"partition1_build_id"`
	Partition2Build  string `json:"partition2_build_id"`
}

func shown(s *nvue.ImageState) *imageState {
	if s == nil {
		return nil
	}
	return &imageState{
		Current: s.Current, Next: s.Next, CurrentPartition: s.CurrentPartition, NextPartition: s.NextPartition,
		CurrentBuild: s.CurrentBuild, NextBuild: s.NextBuild, Partition1Build: s.Partition1Build, Partition2Build: s.Partition2Build,
	}
}

// imageDetails are an image state as details of a stage.
func imageDetails(s nvue.ImageState) map[string]any {
	return map[string]any{
		"current": s.Current, "next": s.Next, "current_partition": s.CurrentPartition, "next_partition": s.NextPartition,
		"current_build_id": s.CurrentBuild, "next_build_id": s.NextBuild,
		"partition1_build_id": s.Partition1Build, "partition2_build_id": s.Partition2Build,
	}
}

// result tells an update that has ended, with err or without.
func (w *update) result(err error) string {
	target := w.t.Target()
	r := result{
		RackID: target.GetRackId(), NodeID: target.GetNodeId(),
		Filename: w.cmd.GetImageFilename(), Target: w.cmd.GetTargetBuildId(), Status: statusSuccess,
		VisibleBefore: w.state.VisibleBefore, VisibleAfter: w.state.VisibleAfter, Timing: w.t.Timeline(),
		Size: w.state.Size, InstallID: string(w.state.InstallID), Before: shown(w.state.Before), After: shown(w.state.After),
	}
	stopped := errors.Is(err, agent.ErrCancelled) || errors.Is(err, agent.ErrTerminated)
	switch {
	case stopped:
		r.Status = statusCancelled
		w.noteStop(r.Timing)
	case err != nil:
		r.Status = statusFailed
	case w.state.UpToDate:
		r.Status = statusUpToDate
	}
	for i := range r.Timing.Stages {
		s := &r.Timing.Stages[i]
		s.Details = w.state.Details[s.Name]
	}
	text, merr := json.Marshal(r)
	if merr != nil {
		return job.FailureResult(job.NewFailure(job.FailureInternal, merr.Error()))
	}
	return string(text)
}

// noteStop tells where the update was stopped: in a stage, or before it began.
func (w *update) noteStop(t job.Timeline) {
	for _, s := range t.Stages {
		switch s.Status {
		case job.StageCompleted:
			continue
		case job.StageSkipped:
			if !s.StartedAt.IsZero() {
				continue // it had nothing to do
			}
			w.note(s.Name, map[string]any{"cancelled_before_start": true})
		case job.StageQueued, job.StageUnspecified:
			w.note(s.Name, map[string]any{"cancelled_before_start": true})
		case job.StageRunning, job.StageFailed:
			w.note(s.Name, map[string]any{"cancelled": true})
		}
		return
	}
}
