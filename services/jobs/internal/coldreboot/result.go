// SPDX-License-Identifier: Apache-2.0

package coldreboot

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
)

func join(parts []string) string { return strings.Join(parts, "; ") }

// failed is the error of a stage. Callers see every failure of a sequence as of the
// class "other"; the failure code tells them apart.
func (s *sequence) failed(stage string, code job.FailureCode, message string, details any, cause error) error {
	if err := s.memory.details(s.t, stage, details); err != nil {
		cause = errors.Join(cause, err)
	}
	f := agent.Fail(code, stage, message, cause)
	f.Failure.Code = job.CodeOther
	return f
}

// cut is the error of a stage that was left before its end.
func (s *sequence) cut(stage string, cause error) error {
	switch {
	case errors.Is(cause, agent.ErrCancelled):
		return s.failed(stage, job.FailureCancelledByOperator, "cold reboot cancelled during "+stage,
			map[string]any{"cancelled": true}, cause)
	case errors.Is(cause, agent.ErrTerminated):
		return fmt.Errorf("cold reboot terminated during %s: %w", stage, cause)
	}
	return cause
}

// cancelledBefore is the error of a sequence that stops in front of a stage.
func (s *sequence) cancelledBefore(stage string) error {
	return s.failed(stage, job.FailureCancelledByOperator, "cold reboot cancelled before "+stage,
		map[string]any{"cancelled_before_start": true}, agent.ErrCancelled)
}

// ended makes the outcome of a sequence that did not go through.
func (s *sequence) ended(err error) (agent.Outcome, error) {
	timeline := s.t.Timeline()
	var told *agent.FailureError
	if stage, ok := timeline.Current(); ok && errors.Is(err, agent.ErrCancelled) && !errors.As(err, &told) {
		// Between two stages.
		err = s.cancelledBefore(stage.Name)
		if failed, ferr := timeline.Fail(time.Now().UTC(), err.Error(), nil); ferr == nil {
			timeline = failed
		}
	}
	return agent.Outcome{ResultJSON: s.result(timeline)}, err
}

// result renders the timeline, with the details of the stages.
func (s *sequence) result(timeline job.Timeline) string {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	for i := range timeline.Stages {
		if kept := s.memory.Stages[timeline.Stages[i].Name]; kept != nil {
			timeline.Stages[i].Details = kept.Details
		}
	}
	data, err := json.Marshal(timeline)
	if err != nil {
		return ""
	}
	return string(data)
}
