// SPDX-License-Identifier: Apache-2.0

package image

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

// recoverAdmin gives the account admin, once, the password that the switch is known
// by, when the new image has brought back the factory's. A switch that goes on
// refusing is waited for like one that does not answer.
func (w *update) recoverAdmin(ctx context.Context) error {
	if w.sw.Login.User != firstlogin.User || w.state.Recovered {
		return nil
	}
	w.t.Logger().Info("the new image refuses the password, trying the factory's", "op", stageSteady)
	account := w.account()
	err := account.Replace(ctx, func() { w.state.KeyAccepted = true })
	if errors.Is(err, ssh.ErrCredentials) {
		// The factory's is not it, or was replaced by an earlier owner of the job.
		err = nil
	}
	if err == nil {
		err = account.Await(ctx)
	}
	var broken *ssh.Error
	switch {
	case err == nil:
		w.state.Recovered = true
		return w.t.Save(ctx, w.state)
	case errors.Is(err, ssh.ErrPasswordRefused):
		return agent.Fail(job.FailurePreconditionFailed, stageSteady,
			fmt.Sprintf("the new image does not take the password that the switch is known by: %v", err), err)
	case device.Passes(err), ctx.Err() != nil:
		return err
	case errors.As(err, &broken) && (broken.Transient() || broken.OutcomeUnknown()):
		w.t.Logger().Warn("expired password not replaced yet", "op", stageSteady, "err", err)
		return nil // SSH comes up later than NVUE
	default:
		return fmt.Errorf("replace the expired password of admin: %w", err)
	}
}

// account is that of the factory, which is to get the password that the switch is
// known by. The new image may show another host key, once.
func (w *update) account() *firstlogin.Account {
	return &firstlogin.Account{
		Switch: w.sw, Next: w.sw.Login.Password, Timing: w.u.opts.Timing.FirstLogin, Sleep: w.t.Sleep, Options: w.loginOptions,
	}
}
