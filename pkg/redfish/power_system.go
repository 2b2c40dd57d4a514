// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"context"
	"log/slog"
	"net/http"
	"slices"

	"github.com/stmcginnis/gofish/schemas"
)

// transitionRefusal names an answer by which a BMC refuses a power-on only
// because a transition is still under way.
type transitionRefusal struct {
	message  string
	statuses []int
}

// transitionRefusals is the table of them, by message name.
func transitionRefusals() []transitionRefusal {
	return []transitionRefusal{
		// Dell and OpenBMC, shortly after an off.
		{"ActionParameterValueConflict", []int{http.StatusConflict, http.StatusBadRequest}},
		// HPE iLO, right after any power change.
		{"InvalidOperationForSystemState", []int{http.StatusBadRequest, http.StatusConflict}},
	}
}

func refusedInTransition(err error) bool {
	e, ok := asError(err)
	if !ok || e.MessageID == "" {
		return false
	}
	return slices.ContainsFunc(transitionRefusals(), func(r transitionRefusal) bool {
		return messageName(e.MessageID) == r.message && slices.Contains(r.statuses, e.Status)
	})
}

func (c *Client) systemPower(ctx context.Context) (PowerReading, error) {
	system, err := c.byID(ctx, "read power state", "Systems", c.profile.SystemID)
	if err != nil {
		return PowerReading{}, err
	}
	return powerOf(schemas.PowerState(system.text("PowerState"))), nil
}

// resetSystem sends a ResetType to the host. The allowable values are not
// consulted: the list is often incomplete, and the device's refusal says more.
func (c *Client) resetSystem(ctx context.Context, resetType schemas.ResetType) error {
	const op = "set power"
	system, err := c.byID(ctx, op, "Systems", c.profile.SystemID)
	if err != nil {
		return err
	}
	reset, err := c.action(op, system, "#ComputerSystem.Reset")
	if err != nil {
		return err
	}
	return c.retryPowerOn(ctx, op, resetType, func() error {
		return c.post(ctx, op, reset.target, map[string]string{"ResetType": string(resetType)})
	})
}

// retryPowerOn repeats a power-on while the device refuses it for a transition.
// Every other refusal is returned at once.
func (c *Client) retryPowerOn(ctx context.Context, op string, resetType schemas.ResetType, send func() error) error {
	on := resetType == schemas.OnResetType || resetType == schemas.ForceOnResetType
	for attempt := 1; ; attempt++ {
		err := send()
		if err == nil || !on || !refusedInTransition(err) || attempt >= c.timing.PowerOnConflictAttempts {
			return err
		}
		c.log.Info("power-on refused during a transition, trying again", slog.Int("attempt", attempt), slog.String("err", err.Error()))
		if err := sleep(ctx, op, pause(c.timing.PowerOnConflictInterval, err)); err != nil {
			return err
		}
	}
}
