// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/rackbus/rackbus/pkg/product"
)

// Lenovo's GB300 tray (HG634N V2) has a BMC of AMI's make, which forgets its
// network, accounts and logs when its firmware is replaced unless it was told
// before to keep them.
const (
	amiUpdateService     = "AMIUpdateService"
	amiUpdateServiceType = "#AMIUpdateService.v1_0_0.AMIUpdateService"
	amiPreserve          = "PreserveConfiguration"
)

// amiKept are the parts of the configuration and whether they are kept. SDR is
// sensor data that belongs to the firmware and has to come from the new one.
func amiKept() map[string]bool {
	return map[string]bool{
		"Authentication": true, "EXTLOG": true, "FRU": true, "IPMI": true, "KVM": true, "NTP": true, "Network": true,
		"REDFISH": true, "SDR": false, "SEL": true, "SNMP": true, "SSH": true, "Syslog": true, "WEB": true,
	}
}

// PreserveConfiguration makes the BMC keep its configuration in the update of its
// own firmware, and reads back that it will. It is repeatable. A BMC that does
// not take the flags fails with CodeInternal after all attempts.
func (c *Client) PreserveConfiguration(ctx context.Context) error {
	const op = "preserve BMC configuration"
	if c.profile.Keep != product.KeepAMI {
		return invalid(op, "the product has no such setting")
	}
	for attempt := 1; ; attempt++ {
		lacking, err := c.preserveOnce(ctx, op)
		if err == nil && len(lacking) == 0 {
			return nil
		}
		if err != nil && (hopeless(ctx, err) || CodeOf(err) == CodeFailedPrecondition) {
			return err
		}
		if attempt >= c.timing.PreserveAttempts {
			e := &Error{Op: op, Code: CodeInternal, reason: "the BMC could not be made to keep its configuration", cause: err}
			if err == nil {
				e.reason += ", it does not hold " + strings.Join(lacking, ", ")
			}
			return e
		}
		c.log.Info("BMC configuration not preserved yet, trying again",
			slog.String("op", op), slog.Int("attempt", attempt), slog.Any("err", err), slog.Any("lacking", lacking))
		if err := sleep(ctx, op, pause(c.timing.PreserveInterval, err)); err != nil {
			return err
		}
	}
}

// preserveOnce sets the flags and gives those that did not take.
func (c *Client) preserveOnce(ctx context.Context, op string) (lacking []string, err error) {
	flags, err := c.preserved(ctx, op)
	if err != nil {
		return nil, err
	}
	wanted := map[string]any{}
	for name, value := range flags {
		wanted[name] = value
	}
	for name, keep := range amiKept() {
		wanted[name] = keep
	}
	// Without its tag the resource is changed with If-Match: *, as AMI asks for.
	err = c.patch(ctx, op, &resource{path: updatePath}, map[string]any{"Oem": map[string]any{
		amiUpdateService: map[string]any{"@odata.type": amiUpdateServiceType, amiPreserve: wanted},
	}})
	if err != nil {
		return nil, err
	}
	if err := sleep(ctx, op, c.timing.PreserveSettle); err != nil {
		return nil, err
	}
	if flags, err = c.preserved(ctx, op); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(amiKept())) {
		if value, ok := document(flags).flag(name); !ok || value != amiKept()[name] {
			lacking = append(lacking, name)
		}
	}
	return lacking, nil
}

// preserved reads the flags as they are.
func (c *Client) preserved(ctx context.Context, op string) (map[string]json.RawMessage, error) {
	r, err := c.get(ctx, op, updatePath)
	if err != nil {
		return nil, err
	}
	ami := r.at("Oem", amiUpdateService)
	if ami == nil {
		return nil, &Error{Op: op, Path: r.path, Code: CodeFailedPrecondition,
			reason: "the update service has no part " + amiUpdateService + ", so its configuration would be lost"}
	}
	return ami.object(amiPreserve), nil
}
