// SPDX-License-Identifier: Apache-2.0

package redfishagent

import (
	"context"
	"errors"
	"fmt"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/redfish"
)

// verify compares the versions of all packages after the activation, several
// times: components come back one after the other.
func (u *update) verify(ctx context.Context) error {
	u.current = nil
	if !u.applied() {
		return agent.Skip("nothing was installed")
	}
	var want []redfish.ExpectedVersion
	for _, s := range u.state.Targets {
		if s.Uploaded {
			want = append(want, s.Expected...)
		}
	}
	t := u.d.opts.Timing
	if err := u.t.Sleep(ctx, t.VerifyFirstDelay); err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		err := u.compare(ctx, want)
		if err == nil || attempt >= t.VerifyAttempts || !repeatable(err) {
			return fail(phaseVerify, "", err)
		}
		u.t.Progress(100, fmt.Sprintf("Verifying activated firmware versions (attempt %d of %d: %v)", attempt, t.VerifyAttempts, err))
		if err := u.t.Sleep(ctx, t.VerifyInterval); err != nil {
			return err
		}
	}
}

func (u *update) compare(ctx context.Context, want []redfish.ExpectedVersion) error {
	inventory, err := u.inventory(ctx)
	if err != nil {
		return err
	}
	report := redfish.CompareVersions(want, inventory)
	u.state.Report = &report
	if serr := u.t.Set(u.state); serr != nil {
		return serr
	}
	if err := report.Err(); err != nil {
		return fmt.Errorf("post-activation firmware version check failed: %w", err)
	}
	return nil
}

// repeatable: a mismatch may be a component that is not back yet, and a device
// that does not answer may still be restarting.
func repeatable(err error) bool {
	return errors.As(err, new(*redfish.VersionError)) || transient(err)
}
