// SPDX-License-Identifier: Apache-2.0

package firmware

import (
	"context"
	"errors"
	"fmt"

	"github.com/rackbus/rackbus/pkg/redfish"
)

// compare compares the installed components with what they should read now.
func (u *update) compare(ctx context.Context) (redfish.VersionReport, error) {
	inventory, err := u.inventory(ctx)
	if err != nil {
		return redfish.VersionReport{}, err
	}
	var want []redfish.ExpectedVersion
	for i, s := range u.work.steps {
		if st := &u.state.Steps[i]; st.installed() {
			want = append(want, redfish.ExpectedVersion{Name: s.target, Version: st.Expected})
		}
	}
	return redfish.CompareVersions(want, inventory.items()), nil
}

// verify compares the versions behind the activation, several times: components
// come back one after the other.
func (u *update) verify(ctx context.Context) error {
	t := &u.u.opts.Timing
	if err := u.t.Sleep(ctx, t.VerifyFirstDelay); err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		report, err := u.compare(ctx)
		if err == nil {
			u.state.Report = &report
			if err := u.save(); err != nil {
				return err
			}
			if err = report.Err(); err != nil {
				err = fmt.Errorf("post-activation firmware version check failed: %w", err)
			}
		}
		again := errors.As(err, new(*redfish.VersionError)) || err != nil && passing(err)
		if err == nil || attempt >= t.VerifyAttempts || !again {
			return fail(phaseVerify, "", err)
		}
		u.t.Progress(100, fmt.Sprintf("Verifying activated firmware versions (attempt %d of %d: %v)", attempt, t.VerifyAttempts, err))
		if err := u.t.Sleep(ctx, t.VerifyInterval); err != nil {
			return err
		}
	}
}
