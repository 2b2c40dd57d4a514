// SPDX-License-Identifier: Apache-2.0

package password

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/secret"
	"github.com/rackbus/rackbus/pkg/ssh"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
)

// recover gives a switch with factory settings its password: the first login as
// admin asks for a new one. NVOS keeps it by itself.
func (w *work) recover(ctx context.Context) error {
	if !w.recoverable() {
		return w.refused("the switch takes neither the former nor the new password")
	}
	w.t.Describe("Recovering the factory-default admin password")
	if err := w.intend(ctx); err != nil {
		return err
	}
	w.state.Recovering = true
	if err := w.t.Save(ctx, w.state); err != nil {
		return err
	}
	err := w.replaceFactory(ctx)
	switch {
	case err == nil:
	case !errors.Is(err, ssh.ErrCredentials):
		return w.fail(stageUpdate, w.because(), err)
	case !w.recovered || w.logIn(ctx) != nil:
		return w.fail(stageUpdate, w.because(), fmt.Errorf("the password of the factory is not taken either: %w", err))
	}
	if err := w.awaitLogin(ctx); err != nil {
		return w.fail(stageUpdate, "the password was changed, but the switch does not let us in with it", err)
	}
	if err := w.adopt(); err != nil {
		return err
	}
	return w.done(ctx, phaseRecovered)
}

// because tells why the factory password was tried.
func (w *work) because() string {
	if w.refusal == nil {
		return "recovery of the factory password"
	}
	return "recovery of the factory password after: " + w.refusal.Error()
}

func (w *work) replaceFactory(ctx context.Context) error {
	shell, err := w.sw.SSHAs(node.Credentials{User: factoryUser, Password: secret.New(factoryUser)})
	if err != nil {
		return err
	}
	defer shell.Close()
	if err := shell.Connect(ctx); err != nil {
		return err
	}
	err = shell.ChangeExpiredPassword(ctx, w.next, w.timing.Dialog)
	if ferr := w.t.Failpoint(agent.FailAfterDeviceChange); ferr != nil {
		return ferr
	}
	var broken *ssh.Error
	switch {
	case errors.Is(err, ssh.ErrPasswordRefused):
		return agent.Fail(job.FailurePreconditionFailed, stageUpdate, err.Error(), err)
	case err != nil && !device.Passes(err) && errors.As(err, &broken) && broken.OutcomeUnknown() && ctx.Err() == nil && w.logIn(ctx) == nil:
		return nil // taken all the same
	default:
		return err
	}
}

// awaitLogin waits until the switch takes the new password.
func (w *work) awaitLogin(ctx context.Context) error {
	end := time.Now().Add(w.timing.LoginLimit)
	for {
		err := w.logIn(ctx)
		if err == nil || device.Passes(err) || ctx.Err() != nil {
			return err
		}
		if time.Now().Add(w.timing.LoginPause).After(end) {
			return fmt.Errorf("no login within %s: %w", w.timing.LoginLimit, err)
		}
		if err := w.t.Sleep(ctx, w.timing.LoginPause); err != nil {
			return err
		}
	}
}

// logIn tries the new password once.
func (w *work) logIn(ctx context.Context) error {
	shell, err := w.sw.SSHAs(node.Credentials{User: factoryUser, Password: w.next})
	if err != nil {
		return err
	}
	defer shell.Close()
	limited, cancel := context.WithTimeout(ctx, w.timing.Login)
	defer cancel()
	return shell.Connect(limited)
}
