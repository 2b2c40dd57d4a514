// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/stmcginnis/gofish/schemas"
)

// shelfCommand is how a shelf with chassis actions takes an operation: by an
// action of its own, else by a ResetType.
type shelfCommand struct {
	action    string
	resetType schemas.ResetType
}

func shelfCommandOf(op PowerOp) (shelfCommand, bool) {
	switch op {
	case PowerOff:
		return shelfCommand{"#Chassis.Off", schemas.GracefulShutdownResetType}, true
	case PowerOn, PowerForceOn:
		return shelfCommand{"#Chassis.On", schemas.OnResetType}, true
	case PowerForceOff:
		return shelfCommand{"#Chassis.ForceOff", schemas.ForceOffResetType}, true
	default:
		return shelfCommand{}, false
	}
}

// unsupportedByShelf refuses an operation before anything is sent.
func unsupportedByShelf(op string, operation PowerOp) error {
	return &Error{Op: op, Code: CodeInvalidArgument,
		reason: operation.String() + " is not supported for powershelf power control", cause: ErrUnsupportedPowerOp}
}

// remembered reads a resource at the place where it was last found. It is nil
// when there is no such place, or no resource there any more.
func (c *Client) remembered(ctx context.Context, op string, place *atomic.Pointer[string]) (*resource, error) {
	known := place.Load()
	if known == nil {
		return nil, nil
	}
	r, err := c.get(ctx, op, *known)
	if CodeOf(err) == CodeNotFound {
		place.Store(nil)
		return nil, nil
	}
	return r, err
}

// shelf reads the chassis of the shelf: the first whose id has the product's
// prefix. Its path is found once per client.
func (c *Client) shelf(ctx context.Context, op string) (*resource, error) {
	if r, err := c.remembered(ctx, op, &c.shelfChassis); r != nil || err != nil {
		return r, err
	}
	list, err := c.collection(ctx, op, rootPath+"/Chassis")
	if err != nil {
		return nil, err
	}
	for _, member := range list.members {
		if strings.HasPrefix(strings.ToLower(leaf(member)), c.profile.ChassisPrefix) {
			r, err := c.get(ctx, op, member)
			if err == nil {
				c.shelfChassis.Store(&member)
			}
			return r, err
		}
	}
	return nil, fault(op, CodeInternal, "no chassis of the device is a power shelf")
}

// supplyState is what a supply says of itself, as text.
func supplyState(supply document) string { return supply.text("PowerState") }

// shelfPower sums up the supplies: one that is off makes the shelf Off, all that
// could be read being on makes it On. A shelf whose chassis answers but whose
// supplies do not is Unknown.
func (c *Client) shelfPower(ctx context.Context, find func(context.Context, string) (*resource, error),
	stateOf func(document) string,
) (PowerReading, error) {
	const op = "read power state"
	unknown := PowerReading{State: PowerStateUnknown}
	chassis, err := find(ctx, op)
	if err != nil {
		return unknown, err
	}
	supplies, err := c.supplies(ctx, op, chassis)
	if err != nil {
		if hopeless(ctx, err) {
			return unknown, err
		}
		return unknown, nil
	}
	state := PowerStateUnknown
	for _, path := range supplies {
		supply, err := c.member(ctx, op, path)
		if err != nil {
			if hopeless(ctx, err) {
				return unknown, err
			}
			continue
		}
		switch strings.ToLower(stateOf(supply.document)) {
		case "off", "false":
			return PowerReading{State: PowerStateOff}, nil
		case "on", "true":
			state = PowerStateOn
		}
	}
	return PowerReading{State: state}, nil
}

func (c *Client) supplies(ctx context.Context, op string, chassis *resource) ([]string, error) {
	subsystem, err := c.follow(ctx, op, chassis.link("PowerSubsystem"), c.timing.Request)
	if err != nil {
		return nil, err
	}
	path, err := c.checkRef(op, subsystem.link("PowerSupplies"))
	if err != nil {
		return nil, err
	}
	list, err := c.collection(ctx, op, path)
	if err != nil {
		return nil, err
	}
	return list.members, nil
}

func (c *Client) shelfAction(ctx context.Context, operation PowerOp) error {
	const op = "set power"
	command, ok := shelfCommandOf(operation)
	if !ok {
		return unsupportedByShelf(op, operation)
	}
	chassis, err := c.shelf(ctx, op)
	if err != nil {
		return err
	}
	if chassis.at("Actions", command.action) != nil {
		return c.shelfDirect(ctx, op, chassis, command)
	}
	reset, err := c.action(op, chassis, "#Chassis.Reset")
	if err != nil {
		return err
	}
	allowed, err := c.allowed(ctx, op, reset, "ResetType")
	if err != nil {
		return err
	}
	if len(allowed) > 0 && !slices.Contains(allowed, string(command.resetType)) {
		return fault(op, CodeFailedPrecondition, "the shelf does not allow ResetType %s", command.resetType)
	}
	return c.retryPowerOn(ctx, op, command.resetType, func() error {
		return c.post(ctx, op, reset.target, map[string]string{"ResetType": string(command.resetType)})
	})
}

// shelfDirect calls an action of its own, with the parameters its ActionInfo
// asks for, for example {"OnType":"On"}.
func (c *Client) shelfDirect(ctx context.Context, op string, chassis *resource, command shelfCommand) error {
	direct, err := c.action(op, chassis, command.action)
	if err != nil {
		return err
	}
	params := map[string]string{}
	list, err := c.parameters(ctx, op, direct)
	if err != nil {
		return err
	}
	for _, p := range list {
		switch {
		case p.fallback != "":
			params[p.name] = p.fallback
		case len(p.allowable) > 0:
			params[p.name] = p.allowable[0]
		}
	}
	return c.retryPowerOn(ctx, op, command.resetType, func() error {
		if len(params) == 0 {
			return c.postBare(ctx, op, direct.target)
		}
		return c.post(ctx, op, direct.target, params)
	})
}
