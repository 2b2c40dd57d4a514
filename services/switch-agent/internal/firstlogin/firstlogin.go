// SPDX-License-Identifier: Apache-2.0

// Package firstlogin gives the account of the factory a password over SSH. A switch
// with factory settings, and some new images, let nobody in over NVUE before the
// expired password admin was replaced in the dialogue of the first login.
package firstlogin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/secret"
	"github.com/rackbus/rackbus/pkg/ssh"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
)

// User is the account of a switch with factory settings, and its password.
const User = "admin"

// Timing holds the waits and limits. A zero field takes its default.
type Timing struct {
	// Dialog bounds the dialogue that replaces the expired password. 90 s.
	Dialog time.Duration
	// Login bounds one login with the new password after it, Pause is the pause
	// between two, Limit ends them. 5 s, 5 s, 60 s.
	Login time.Duration
	Pause time.Duration
	Limit time.Duration
}

// WithDefaults fills the zero fields.
func (t Timing) WithDefaults() Timing {
	for _, f := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&t.Dialog, 90 * time.Second},
		{&t.Login, 5 * time.Second},
		{&t.Pause, 5 * time.Second},
		{&t.Limit, time.Minute},
	} {
		if *f.field <= 0 {
			*f.field = f.value
		}
	}
	return t
}

// Factory is the login of a switch with factory settings.
func Factory() node.Credentials { return node.Credentials{User: User, Password: secret.New(User)} }

// Account is the account of the factory on one switch, which is to get a password.
type Account struct {
	Switch *device.Switch
	// Next is the password that it is to get.
	Next   secret.Value
	Timing Timing
	// Sleep pauses between two logins; (*agent.Task).Sleep does.
	Sleep func(ctx context.Context, d time.Duration) error
	// Options of every login; it may be nil.
	Options func() []device.SSHOption
}

func (a *Account) options() []device.SSHOption {
	if a.Options == nil {
		return nil
	}
	return a.Options()
}

// Replace logs in with the factory's password and answers the dialogue. connected,
// when set, is told that the switch took that password. A switch that does not take
// it gives ssh.ErrCredentials, one that refuses the new one ssh.ErrPasswordRefused.
func (a *Account) Replace(ctx context.Context, connected func()) error {
	shell, err := a.Switch.SSHAs(Factory(), a.options()...)
	if err != nil {
		return err
	}
	defer shell.Close()
	if err := shell.Connect(ctx); err != nil {
		return err
	}
	if connected != nil {
		connected()
	}
	return shell.ChangeExpiredPassword(ctx, a.Next, a.Timing.Dialog)
}

// LogIn tries the new password once.
func (a *Account) LogIn(ctx context.Context) error {
	shell, err := a.Switch.SSHAs(node.Credentials{User: User, Password: a.Next}, a.options()...)
	if err != nil {
		return err
	}
	defer shell.Close()
	limited, cancel := context.WithTimeout(ctx, a.Timing.Login)
	defer cancel()
	return shell.Connect(limited)
}

// maxRefusals is how often a switch may refuse the new password before it counts as
// wrong: accounts are locked after some wrong ones.
const maxRefusals = 3

// Await waits until the switch takes the new password. One that goes on refusing it
// is not waited for.
func (a *Account) Await(ctx context.Context) error {
	end, refusals := time.Now().Add(a.Timing.Limit), 0
	for {
		err := a.LogIn(ctx)
		if errors.Is(err, ssh.ErrCredentials) {
			refusals++
		}
		if err == nil || device.Passes(err) || ctx.Err() != nil {
			return err
		}
		if refusals >= maxRefusals {
			return fmt.Errorf("the new password was refused %d times: %w", refusals, err)
		}
		if time.Now().Add(a.Timing.Pause).After(end) {
			return fmt.Errorf("no login within %s: %w", a.Timing.Limit, err)
		}
		if err := a.Sleep(ctx, a.Timing.Pause); err != nil {
			return err
		}
	}
}
