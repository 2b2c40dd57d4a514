// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"context"
	"errors"

	"github.com/rackbus/rackbus/pkg/diagnostics"
	"github.com/rackbus/rackbus/pkg/redfish"
	"github.com/rackbus/rackbus/pkg/redfishagent"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
)

// ofBMC are the collectors over Redfish, none of them required. Their files are
// those of every device with Redfish, so that the same rules look at them.
func ofBMC(c *redfish.Client) []diagnostics.Collector {
	list := redfishagent.Collectors(c)
	for i, inner := range list {
		b := bmcCollector{inner}
		list[i] = b
		if f, ok := inner.(diagnostics.Fingerprinter); ok {
			list[i] = bmcState{b, f}
		}
	}
	return list
}

// bmcCollector makes a collector optional and tells it from those of the switch's
// own system.
type bmcCollector struct{ diagnostics.Collector }

func (b bmcCollector) Name() string { return "bmc_" + b.Collector.Name() }

func (bmcCollector) Required() bool { return false }

// bmcState watches the BMC as well.
type bmcState struct {
	bmcCollector
	inner diagnostics.Fingerprinter
}

// Fingerprint is that of the BMC. One that does not answer is told as that, and does
// not keep the rest from being watched.
func (b bmcState) Fingerprint(ctx context.Context) (diagnostics.Fingerprint, error) {
	out, err := b.inner.Fingerprint(ctx)
	var answer *redfish.Error
	switch {
	case err == nil:
		return out, nil
	case ctx.Err() == nil && !device.Passes(err) && errors.As(err, &answer):
		return diagnostics.Fingerprint{"readable": "no"}, nil
	default:
		return nil, err
	}
}
