// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"context"
	"strings"

	"github.com/stmcginnis/gofish/schemas"
)

// Delta's shelves switch their supplies with two OEM actions of the PowerShelf
// resource, and tell the state of a supply in an OEM member. Seen on the GB200
// and GB300 shelves of Delta Energy Systems.
const (
	deltaOEM          = "deltaenergysystems"
	deltaShelves      = rootPath + "/PowerEquipment/PowerShelves"
	deltaTurnOn       = "#PowerShelf.TurnOnPSUs"
	deltaTurnOff      = "#PowerShelf.TurnOffPSUs"
	deltaManufacturer = "delta"
)

// deltaCommandOf is the action for an operation, and what it comes down to. There
// is no graceful way: the supplies are cut.
func deltaCommandOf(op PowerOp) (shelfCommand, bool) {
	switch op {
	case PowerOn, PowerForceOn:
		return shelfCommand{deltaTurnOn, schemas.OnResetType}, true
	case PowerOff, PowerForceOff:
		return shelfCommand{deltaTurnOff, schemas.ForceOffResetType}, true
	default:
		return shelfCommand{}, false
	}
}

// isDelta reports whether a resource bears the vendor's mark.
func isDelta(d document) bool {
	if strings.Contains(strings.ToLower(d.text("Manufacturer")), deltaManufacturer) {
		return true
	}
	for key := range d.object("Oem") {
		if strings.Contains(strings.ToLower(key), deltaManufacturer) {
			return true
		}
	}
	return false
}

// deltaSupplyState reads the OEM member, else the standard one.
func deltaSupplyState(supply document) string {
	if state := supply.at("Oem", deltaOEM).text("Power"); state != "" {
		return state
	}
	return supplyState(supply)
}

// deltaChassis finds the chassis with the supplies: marked and with a
// PowerSubsystem, else the first with one.
func (c *Client) deltaChassis(ctx context.Context, op string) (*resource, error) {
	if r, err := c.remembered(ctx, op, &c.shelfChassis); r != nil || err != nil {
		return r, err
	}
	supplied := func(d document) bool { return d.link("PowerSubsystem") != "" }
	found, err := c.firstMember(ctx, op, rootPath+"/Chassis",
		func(d document) bool { return supplied(d) && isDelta(d) }, supplied)
	if err == nil && found == nil {
		err = fault(op, CodeInternal, "no chassis of the device has a power subsystem")
	}
	if err != nil {
		return nil, err
	}
	c.shelfChassis.Store(&found.path)
	return found, nil
}

// deltaAction calls the action for an operation on the shelf that offers both:
// the one that says it is Delta's power shelf, else any.
func (c *Client) deltaAction(ctx context.Context, operation PowerOp) error {
	const op = "set power"
	command, ok := deltaCommandOf(operation)
	if !ok {
		return unsupportedByShelf(op, operation)
	}
	shelf, err := c.deltaShelf(ctx, op)
	if err != nil {
		return err
	}
	target, err := c.checkRef(op, deltaTarget(shelf.document, command.action))
	if err != nil {
		return err
	}
	return c.retryPowerOn(ctx, op, command.resetType, func() error { return c.postBare(ctx, op, target) })
}

func deltaTarget(d document, action string) string {
	return d.at("Oem", deltaOEM, "Actions", action).text("target")
}

func (c *Client) deltaShelf(ctx context.Context, op string) (*resource, error) {
	both := func(d document) bool { return deltaTarget(d, deltaTurnOn) != "" && deltaTarget(d, deltaTurnOff) != "" }
	if r, err := c.remembered(ctx, op, &c.powerShelf); err != nil || r != nil && both(r.document) {
		return r, err
	}
	found, err := c.firstMember(ctx, op, deltaShelves, func(d document) bool {
		return both(d) && isDelta(d) && (strings.Contains(strings.ToLower(d.text("EquipmentType")), "powershelf") ||
			strings.Contains(strings.ToLower(d.text("Name")), "power shelf"))
	}, both)
	if err == nil && found == nil {
		err = &Error{Op: op, Code: CodeInternal, reason: "no power shelf of the device can switch its supplies", cause: ErrNoAction}
	}
	if err != nil {
		return nil, err
	}
	c.powerShelf.Store(&found.path)
	return found, nil
}

// firstMember reads the members of a collection and gives the first that is
// wanted, else the first that will do, else nil. Members that cannot be read are
// stepped over; if nothing is found, the first such error is returned.
func (c *Client) firstMember(ctx context.Context, op, path string, wanted, will func(document) bool) (*resource, error) {
	list, err := c.collection(ctx, op, path)
	if err != nil {
		return nil, err
	}
	var fallback *resource
	var skipped error
	for _, member := range list.members {
		r, err := c.member(ctx, op, member)
		switch {
		case err != nil && hopeless(ctx, err):
			return nil, err
		case err != nil:
			skipped = first(skipped, err)
		case wanted(r.document):
			return r, nil
		case fallback == nil && will(r.document):
			fallback = r
		}
	}
	if fallback != nil {
		return fallback, nil
	}
	return nil, skipped
}
