// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"context"
	"errors"
	"path"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/ssh"
	"github.com/rackbus/rackbus/pkg/switchtls"
)

// removeKey removes the private key, and what an upload of it that was cut has left.
func (w *work) removeKey(ctx context.Context) error {
	if !w.state.KeyStaged {
		return nil
	}
	key := path.Join(w.directory(), switchtls.FileKey)
	err := w.shell(func(client *ssh.Client) error {
		return errors.Join(client.Remove(ctx, key), client.Remove(ctx, ssh.TempPath(key)))
	})
	if err != nil {
		return err
	}
	w.state.KeyStaged = false
	return w.save(ctx)
}

// cleanUp takes the staged files from the switch after a failure, the private key
// first, and adds to the error what became of that. It runs although the job has
// ended, but never when this process may not act on the switch any more.
func (w *work) cleanUp(ctx context.Context, cause error) error {
	if !w.state.Directory {
		return cause
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.timing.Cleanup)
	defer cancel()
	staged := w.state.KeyStaged
	err := w.removeKey(ctx)
	if err == nil {
		err = w.removeDirectory(ctx)
	}
	text := ""
	switch {
	case w.state.KeyStaged:
		text = "the staged private key may still be on the switch in " + w.directory() + ": " + err.Error()
		w.t.Logger().Error("staged private key not removed", "op", "clean_up", "err", err)
	case err != nil:
		text = "the directory " + w.directory() + " without the private key is still on the switch"
		w.t.Logger().Warn("staged files not removed", "op", "clean_up", "err", err)
	case staged:
		text = "the staged private key and its directory were removed from the switch"
	default:
		text = "the staged files were removed from the switch"
	}
	return amend(cause, text)
}

func (w *work) removeDirectory(ctx context.Context) error {
	return w.shell(func(client *ssh.Client) error {
		for _, name := range []string{switchtls.FileCA, switchtls.FileCertificate} {
			remote := path.Join(w.directory(), name)
			if err := errors.Join(client.Remove(ctx, remote), client.Remove(ctx, ssh.TempPath(remote))); err != nil {
				return err
			}
		}
		return client.Remove(ctx, w.directory())
	})
}

// amend adds to what is told of a failure. A job that was cut says so itself.
func amend(cause error, text string) error {
	if errors.Is(cause, agent.ErrCancelled) {
		return agent.Fail(job.FailureCancelledByOperator, "cancelled", "cancelled; "+text, cause)
	}
	fail, ok := errors.AsType[*agent.FailureError](cause)
	if !ok {
		return cause
	}
	more := *fail.Failure
	more.Message += "; " + text
	return &agent.FailureError{Failure: &more, Err: cause}
}
