// SPDX-License-Identifier: Apache-2.0

package redfishagent

import (
	"context"
	"errors"
	"fmt"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/redfish"
)

// checkReport is a comparison of versions as results tell it.
type checkReport struct {
	redfish.VersionReport
	// Verification is the tag of the product's way of comparing.
	Verification string `json:"verification,omitempty"`
	// Stage is the group's name where there are several.
	Stage string `json:"stage,omitempty"`
}

func (g *group) report(r redfish.VersionReport) *checkReport {
	return &checkReport{VersionReport: r, Verification: g.plan.Verification, Stage: g.plan.Name}
}

// verify compares the versions of the group's packages behind the activation,
// several times: components come back one after the other.
func (g *group) verify(ctx context.Context) error {
	u := g.u
	u.current = nil
	if !g.applied() {
		return agent.Skip("nothing was installed")
	}
	var want []redfish.ExpectedVersion
	for _, item := range g.plan.Items {
		if s := u.state.Targets[item.Index]; s.Uploaded {
			want = append(want, s.Expected...)
		}
	}
	if len(want) == 0 && u.c.Profile().Kind == redfish.KindPowerShelf {
		return agent.Skip("the package names no version that the inventory shows")
	}
	t := &u.d.opts.Timing
	if err := u.t.Sleep(ctx, t.VerifyFirstDelay); err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		err := g.compare(ctx, want)
		if err == nil || attempt >= t.VerifyAttempts || !repeatable(err) {
			return fail(phaseVerify, "", err)
		}
		u.t.Progress(100, fmt.Sprintf("Verifying activated firmware versions (attempt %d of %d: %v)", attempt, t.VerifyAttempts, err))
		if err := u.t.Sleep(ctx, t.VerifyInterval); err != nil {
			return err
		}
	}
}

func (g *group) compare(ctx context.Context, want []redfish.ExpectedVersion) error {
	inventory, err := g.u.inventory(ctx)
	if err != nil {
		return err
	}
	report := redfish.CompareVersions(want, inventory)
	g.state().Report = g.report(report)
	if serr := g.u.save(); serr != nil {
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
