// SPDX-License-Identifier: Apache-2.0

package security

import (
	"encoding/json"
	"errors"

	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/failpoint"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/ssh"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
)

// GoesOn reports whether another owner goes on with the job: what was begun on the
// switch is then left as it is.
func GoesOn(err error) bool {
	return errors.Is(err, agent.ErrHandedOver) || errors.Is(err, failpoint.ErrInjected)
}

// Secrets reads the secrets of a job's request; (*agent.Task).Secrets does.
type Secrets func(*agent.Task, proto.Message) error

// Failure gives an error of a phase the form in which a job's record tells it.
func Failure(phase, prefix string, err error) error {
	return device.Failure(phase, prefix, fallback(err), err)
}

func fallback(err error) job.FailureCode {
	switch {
	case errors.Is(err, nvue.ErrActionFailed), errors.Is(err, nvue.ErrRevisionFailed):
		return job.FailureTaskException
	case errors.Is(err, nvue.ErrActionGone):
		return job.FailureTaskLost
	case errors.Is(err, nvue.ErrTimeout):
		return job.FailureTaskTimeout
	case errors.Is(err, nvue.ErrBadResponse):
		return job.FailureBMCInvalidResponse
	case nvue.CodeOf(err) != "":
		return job.FailureBMCRefused
	case errors.As(err, new(*ssh.ExitError)):
		return job.FailureTaskException
	case ssh.IsKind(err, ssh.KindTimeout):
		return job.FailureTaskTimeout
	case ssh.IsKind(err, ssh.KindClosed):
		return job.FailureHostUnreachable
	case ssh.IsKind(err, ssh.KindRefused, ssh.KindProtocol, ssh.KindFile):
		return job.FailureHostRefused
	default:
		return job.FailureInternal
	}
}

// Details are the details of stages for result_json, by stage name.
type Details map[string]map[string]any

// Set adds to the details of a stage.
func (d *Details) Set(stage string, values map[string]any) {
	if *d == nil {
		*d = Details{}
	}
	if (*d)[stage] == nil {
		(*d)[stage] = map[string]any{}
	}
	for key, value := range values {
		(*d)[stage][key] = value
	}
}

// Timeline is the job's timeline with details.
func Timeline(t *agent.Task, details Details) job.Timeline {
	out := t.Timeline()
	out.Stages = append([]job.TimelineStage(nil), out.Stages...)
	for i := range out.Stages {
		if d := details[out.Stages[i].Name]; len(d) > 0 {
			out.Stages[i].Details = json.RawMessage(Encode(d))
		}
	}
	return out
}

// Status is the word of a result for how a job has ended.
func Status(err error) string {
	switch {
	case err == nil:
		return "completed"
	case errors.Is(err, agent.ErrCancelled):
		return "cancelled"
	default:
		return "failed"
	}
}

// Encode writes a result.
func Encode(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		// Only plain values are in these results.
		return job.FailureResult(job.NewFailure(job.FailureInternal, err.Error()))
	}
	return string(data)
}
