// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/credentials"
	"github.com/rackbus/rackbus/pkg/job"
)

// Secrets reads the secrets of the job's request into a message of the kind that
// was sealed. The error wraps credentials.ErrNone when it came without any.
func (t *Task) Secrets(into proto.Message) error {
	err := t.f.secrets(t.Command(), into)
	switch {
	case err == nil:
		t.mask.message(into)
		return nil
	case errors.Is(err, credentials.ErrNone):
		return Fail(job.FailureCredentialsMissing, "credentials", err.Error(), err)
	default:
		return Fail(job.FailureCredentialsUnreadable, "credentials", err.Error(), err)
	}
}

// Deadline is when the job's run limit is over, zero when it has none.
func (t *Task) Deadline() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return timeOf(t.ck.GetDeadline())
}

// Timeline is how far the stages are. It has no details: a workflow that shows
// some adds them.
func (t *Task) Timeline() job.Timeline {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.timeline
}
