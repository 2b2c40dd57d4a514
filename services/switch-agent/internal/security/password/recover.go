// SPDX-License-Identifier: Apache-2.0

package password

import (
	"context"
	"errors"
	"fmt"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/ssh"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/firstlogin"
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
	case !w.recovered || w.account().LogIn(ctx) != nil:
		return w.fail(stageUpdate, w.because(), fmt.Errorf("the password of the factory is not taken either: %w", err))
	}
	if err := w.account().Await(ctx); err != nil {
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

// account is the one of the factory, with the password that it is to get.
func (w *work) account() *firstlogin.Account {
	return &firstlogin.Account{Switch: w.sw, Next: w.next, Timing: w.timing.First, Sleep: w.t.Sleep}
}

func (w *work) replaceFactory(ctx context.Context) error {
	account, taken := w.account(), false
	err := account.Replace(ctx, func() { taken = true })
	if !taken {
		return err
	}
	if ferr := w.t.Failpoint(agent.FailAfterDeviceChange); ferr != nil {
		return ferr
	}
	var broken *ssh.Error
	switch {
	case errors.Is(err, ssh.ErrPasswordRefused):
		return agent.Fail(job.FailurePreconditionFailed, stageUpdate, err.Error(), err)
	case err != nil && !device.Passes(err) && errors.As(err, &broken) && broken.OutcomeUnknown() && ctx.Err() == nil && account.LogIn(ctx) == nil:
		return nil // taken all the same
	default:
		return err
	}
}
