// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"context"
	"errors"
	"math"
	"slices"
)

// DeviceInfo places a tray in its NVLink rack. Fields the device does not give,
// or gives as something else than a number, are nil.
type DeviceInfo struct {
	ChassisSerial *int64
	SlotNumber    *uint32
	TrayIndex     *uint32
}

// ErrNoDeviceInfo is wrapped when no processor tells of an NVLink topology.
var ErrNoDeviceInfo = errors.New("no processor tells the NVLink topology")

// DeviceInfo finds the first processor with an NVLink topology and reads it. The
// GPU baseboard is looked at first. Processors that cannot be read are skipped;
// if none tells, the first such error is returned, else ErrNoDeviceInfo.
func (c *Client) DeviceInfo(ctx context.Context) (DeviceInfo, error) {
	const op = "read device info"
	ctx, cancel := context.WithTimeout(ctx, c.timing.DeviceInfo)
	defer cancel()
	systems, err := c.collection(ctx, op, rootPath+"/Systems")
	if err != nil {
		return DeviceInfo{}, err
	}
	slices.SortStableFunc(systems.members, func(a, b string) int {
		return rank(a, c.profile.BaseboardID) - rank(b, c.profile.BaseboardID)
	})
	var skipped error
	for _, path := range systems.members {
		topology, err := c.topologyOf(ctx, op, path)
		switch {
		case topology != nil:
			return decodeTopology(op, topology)
		case err != nil && hopeless(ctx, err):
			return DeviceInfo{}, err
		case err != nil && skipped == nil:
			skipped = err
		}
	}
	if skipped != nil {
		return DeviceInfo{}, skipped
	}
	return DeviceInfo{}, &Error{Op: op, Code: CodeNotFound, cause: ErrNoDeviceInfo}
}

func rank(path, preferred string) int {
	if leaf(path) == preferred {
		return 0
	}
	return 1
}

// topologyOf looks through the processors of one system. It returns the first
// error it had to step over when it finds nothing.
func (c *Client) topologyOf(ctx context.Context, op, path string) (*resource, error) {
	system, err := c.member(ctx, op, path)
	if err != nil {
		return nil, err
	}
	ref := system.link("Processors")
	if ref == "" {
		return nil, nil
	}
	list, err := c.checkRef(op, ref)
	if err != nil {
		return nil, err
	}
	processors, err := c.collection(ctx, op, list)
	if err != nil {
		return nil, err
	}
	var skipped error
	for _, member := range processors.members {
		processor, err := c.member(ctx, op, member)
		if err != nil {
			if hopeless(ctx, err) {
				return nil, err
			}
			skipped = first(skipped, err)
			continue
		}
		if processor.at("Oem", "Nvidia").has("MNNVLinkTopology") {
			return processor, nil
		}
	}
	return nil, skipped
}

func decodeTopology(op string, processor *resource) (DeviceInfo, error) {
	t := processor.at("Oem", "Nvidia", "MNNVLinkTopology")
	if t == nil {
		return DeviceInfo{}, &Error{Op: op, Path: processor.path, Code: CodeInvalidArgument, reason: "MNNVLinkTopology is not an object"}
	}
	var info DeviceInfo
	if serial, ok := t.integer("ChassisSerialNumber"); ok {
		info.ChassisSerial = &serial
	}
	info.SlotNumber = small(t, "TraySlotNumber")
	info.TrayIndex = small(t, "TraySlotIndex")
	return info, nil
}

func small(d document, key string) *uint32 {
	i, ok := d.integer(key)
	if !ok || i < 0 || i > math.MaxUint32 {
		return nil
	}
	n := uint32(i)
	return &n
}
