// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
)

// WriteProtectError says that firmware cannot be written.
type WriteProtectError struct {
	// Hardware is the chassis whose hardware write protect is on, if it is.
	Hardware string
	// Components are the inventory members that are write-protected.
	Components []string
}

// Error names what is protected.
func (e *WriteProtectError) Error() string {
	if e.Hardware != "" {
		return fmt.Sprintf("hardware write protect is enabled at %s Oem.Nvidia.HardwareWriteProtectEnable=true; switch it off on the tray first", e.Hardware)
	}
	return fmt.Sprintf("firmware component write protect is enabled for %d component(s): %s",
		len(e.Components), strings.Join(e.Components, " WriteProtected=true, ")+" WriteProtected=true")
}

// CheckWritable looks whether anything on the tray is write-protected: the
// hardware switch first, then each inventory member. Both are best effort where
// the device does not say; only a collection that cannot be read is an error.
func (c *Client) CheckWritable(ctx context.Context) error {
	const op = "check write protection"
	if path := c.profile.WriteProtectPath; path != "" {
		chassis, err := c.get(ctx, op, path)
		if err != nil && hopeless(ctx, err) {
			return err
		}
		if err != nil {
			c.log.Warn("hardware write protect not readable, going on", slog.String("path", path), slog.String("err", err.Error()))
		} else if on, _ := chassis.at("Oem", "Nvidia").flag("HardwareWriteProtectEnable"); on {
			return &WriteProtectError{Hardware: path}
		}
	}
	list, err := c.inventoryCollection(ctx, op)
	if err != nil {
		return err
	}
	var protected []string
	for _, member := range list.members {
		r, err := c.member(ctx, op, member)
		if err != nil {
			if hopeless(ctx, err) {
				return err
			}
			continue
		}
		if on, _ := r.flag("WriteProtected"); on {
			protected = append(protected, member)
		}
	}
	if len(protected) > 0 {
		return &WriteProtectError{Components: protected}
	}
	return nil
}

// inventoryCollection reads the collection, patiently: an aggregating BMC needs
// a while after a restart.
func (c *Client) inventoryCollection(ctx context.Context, op string) (*collection, error) {
	for attempt := 1; ; attempt++ {
		list, err := c.collection(ctx, op, updatePath+"/FirmwareInventory")
		if err == nil && !list.listed {
			return nil, unreadable(op, "the firmware inventory (it has no Members)", nil)
		}
		if err == nil || hopeless(ctx, err) || attempt >= c.timing.InventoryAttempts {
			return list, err
		}
		if err := sleep(ctx, op, pause(c.timing.InventoryInterval, err)); err != nil {
			return nil, err
		}
	}
}

// MissingInventory gives the expected names that the firmware inventory lacks,
// with the names that are there. Names are compared without regard to case.
func (c *Client) MissingInventory(ctx context.Context, expected []string) (missing, present []string, err error) {
	list, err := c.collection(ctx, "check expected inventory", updatePath+"/FirmwareInventory")
	if err != nil {
		return nil, nil, err
	}
	known := map[string]bool{}
	for _, member := range list.members {
		known[strings.ToLower(leaf(member))] = true
		present = append(present, leaf(member))
	}
	for name := range embeddedInventory(list) {
		if !known[name] {
			known[name] = true
			present = append(present, name)
		}
	}
	for _, name := range expected {
		if !known[strings.ToLower(strings.TrimSpace(name))] {
			missing = append(missing, name)
		}
	}
	return missing, present, nil
}
