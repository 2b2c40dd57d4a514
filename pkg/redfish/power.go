// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"context"
	"errors"
	"fmt"

	"github.com/stmcginnis/gofish/schemas"

	"github.com/rackbus/rackbus/pkg/product"
)

// PowerOp is a power operation as clients ask for it.
type PowerOp int

// The operations. Off and Cycle map to GracefulShutdown and PowerCycle on trays.
const (
	PowerOff PowerOp = iota + 1
	PowerOn
	PowerReset
	PowerForceOff
	PowerForceOn
	PowerGracefulShutdown
	PowerGracefulRestart
	PowerForceRestart
)

// String gives the operation's published name.
func (o PowerOp) String() string {
	switch o {
	case PowerOff:
		return "OFF"
	case PowerOn:
		return "ON"
	case PowerReset:
		return "RESET"
	case PowerForceOff:
		return "FORCE_OFF"
	case PowerForceOn:
		return "FORCE_ON"
	case PowerGracefulShutdown:
		return "GRACEFUL_SHUTDOWN"
	case PowerGracefulRestart:
		return "GRACEFUL_RESTART"
	case PowerForceRestart:
		return "FORCE_RESTART"
	default:
		return fmt.Sprintf("power operation %d", int(o))
	}
}

// resetType is the ResetType a tray gets for an operation.
func (o PowerOp) resetType() (schemas.ResetType, bool) {
	switch o {
	case PowerOff, PowerGracefulShutdown:
		return schemas.GracefulShutdownResetType, true
	case PowerOn:
		return schemas.OnResetType, true
	case PowerReset:
		return schemas.PowerCycleResetType, true
	case PowerForceOff:
		return schemas.ForceOffResetType, true
	case PowerForceOn:
		return schemas.ForceOnResetType, true
	case PowerGracefulRestart:
		return schemas.GracefulRestartResetType, true
	case PowerForceRestart:
		return schemas.ForceRestartResetType, true
	default:
		return "", false
	}
}

// PowerState is what a power read comes down to.
type PowerState string

// The states. Unknown covers transitions, supplies that do not answer and values
// that mean nothing to us.
const (
	PowerStateOn      PowerState = "ON"
	PowerStateOff     PowerState = "OFF"
	PowerStateUnknown PowerState = "UNKNOWN"
)

// PowerReading is a power state with the device's own word for it.
type PowerReading struct {
	State PowerState
	// Raw is the value as read, for example PoweringOn; empty when there was none
	// or when the reading sums up several supplies.
	Raw schemas.PowerState
}

var (
	// ErrUnsupportedPowerOp is wrapped when the product cannot do an operation.
	ErrUnsupportedPowerOp = errors.New("power operation not supported")
	// ErrNoAction is wrapped when the device does not offer a needed action.
	ErrNoAction = errors.New("action not offered")
)

// PowerState reads the power state of the host of a tray, or of a shelf.
func (c *Client) PowerState(ctx context.Context) (PowerReading, error) {
	switch c.profile.Power {
	case product.PowerSystem:
		return c.systemPower(ctx)
	case product.PowerChassisActions:
		return c.shelfPower(ctx, c.shelf, supplyState)
	case product.PowerSupplyActions:
		return c.shelfPower(ctx, c.deltaChassis, deltaSupplyState)
	default:
		return PowerReading{}, invalid("read power state", "the product has no known way to read power")
	}
}

// Power performs a power operation. Success means that the device accepted it,
// not that the state has changed. An operation the product cannot do fails with
// ErrUnsupportedPowerOp before anything is sent.
func (c *Client) Power(ctx context.Context, op PowerOp) error {
	switch c.profile.Power {
	case product.PowerSystem:
		resetType, ok := op.resetType()
		if !ok {
			return &Error{Op: "set power", Code: CodeInvalidArgument, reason: op.String(), cause: ErrUnsupportedPowerOp}
		}
		return c.resetSystem(ctx, resetType)
	case product.PowerChassisActions:
		return c.shelfAction(ctx, op)
	case product.PowerSupplyActions:
		return c.deltaAction(ctx, op)
	default:
		return invalid("set power", "the product has no known way to switch power")
	}
}

// powerOf maps a Redfish PowerState.
func powerOf(raw schemas.PowerState) PowerReading {
	switch raw {
	case schemas.OnPowerState:
		return PowerReading{State: PowerStateOn, Raw: raw}
	case schemas.OffPowerState:
		return PowerReading{State: PowerStateOff, Raw: raw}
	default:
		return PowerReading{State: PowerStateUnknown, Raw: raw}
	}
}
