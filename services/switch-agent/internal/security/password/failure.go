// SPDX-License-Identifier: Apache-2.0

package password

import (
	"encoding/base64"
	"errors"
	"slices"
	"strings"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/telemetry"
	"github.com/rackbus/rackbus/services/switch-agent/internal/firstlogin"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security"
)

// fail gives an error the form in which the job's record tells it, without secrets.
// Reasons to stop pass.
func (w *work) fail(phase, prefix string, err error) error {
	err = security.Failure(phase, prefix, err)
	fail, ok := errors.AsType[*agent.FailureError](err)
	if !ok {
		return err
	}
	clean := *fail.Failure
	clean.Code = class(clean)
	clean.Message = w.redact(clean.Message)
	if clean.Device != nil {
		answer := *clean.Device
		answer.Message = w.redact(answer.Message)
		clean.Device = &answer
	}
	return &agent.FailureError{Failure: &clean, Err: fail.Err}
}

// class is the published class of a failure, which for this job is coarser than
// elsewhere: what has to be put right first counts as an argument, and what has no
// class of its own as internal.
func class(f job.Failure) job.ErrorCode {
	switch f.Code {
	case job.CodeFailedPrecondition:
		return job.CodeInvalidArgument
	case job.CodeInvalidArgument, job.CodeUnauthenticated, job.CodeTimeout, job.CodeTargetNotFound, job.CodeClientError:
		return f.Code
	default:
		return job.CodeInternal
	}
}

// redact removes both passwords and their encoded forms, the longest first since
// one may contain another.
func (w *work) redact(text string) string {
	var forms []string
	for _, plain := range []string{w.next.Reveal(), w.former.Reveal()} {
		if plain != "" && plain != firstlogin.User {
			forms = append(forms, plain, base64.StdEncoding.EncodeToString([]byte(plain)))
		}
	}
	slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) })
	for _, form := range forms {
		text = strings.ReplaceAll(text, form, telemetry.Mask)
	}
	return text
}
