// SPDX-License-Identifier: Apache-2.0

package image

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

// adminUser is the account, and the password, of the factory. An installation may
// bring them back, expired.
const adminUser = "admin"

// recoverAdmin gives the account admin, once, the password that the switch is known
// by, when the new image has brought back the factory's. A switch that goes on
// refusing is waited for like one that does not answer.
func (w *update) recoverAdmin(ctx context.Context) error {
	if w.sw.Login.User != adminUser || w.state.Recovered {
		return nil
	}
	w.t.Logger().Info("the new image refuses the password, trying the factory's", "op", stageSteady)
	err := w.changeExpired(ctx)
	if errors.Is(err, ssh.ErrCredentials) {
		// The factory's is not it, or was replaced by an earlier owner of the job.
		err = nil
	}
	if err == nil {
		err = w.awaitLogin(ctx)
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

// changeExpired answers the dialogue of the first login.
func (w *update) changeExpired(ctx context.Context) error {
	c, err := w.sw.SSHAs(node.Credentials{User: adminUser, Password: secret.New(adminUser)}, device.NewHostKey)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Connect(ctx); err != nil {
		return err
	}
	w.state.KeyAccepted = true
	return c.ChangeExpiredPassword(ctx, w.sw.Login.Password, w.u.opts.Timing.PasswordDialog)
}

// awaitLogin waits until the switch lets us in with its own password.
func (w *update) awaitLogin(ctx context.Context) error {
	t := &w.u.opts.Timing
	for end := time.Now().Add(t.PasswordLimit); ; {
		err := w.loginWithin(ctx, t.PasswordLogin)
		if err == nil || device.Passes(err) || ctx.Err() != nil || !time.Now().Before(end) {
			return err
		}
		if err := w.t.Sleep(ctx, t.PasswordPause); err != nil {
			return err
		}
	}
}

func (w *update) loginWithin(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return w.login(ctx)
}
