// SPDX-License-Identifier: Apache-2.0

package switchagent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/rackbus/rackbus/pkg/redfish"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/firmware"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
)

// Operations that the agent answers, beside those of the fabric.
const (
	OpPowerGet           = "power_get"
	OpPowerSet           = "power_set"
	OpDeviceInfo         = "device_info"
	OpFirmwareInventory  = "firmware_inventory"
	OpNVOSHello          = "nvos_hello"
	OpListSwitchFirmware = "list_switch_firmware"
	OpListSwitchImages   = "list_switch_images"
	OpPushSwitchFirmware = "push_switch_firmware"
	OpSPDMEvidence       = "spdm_evidence"
)

// powerGet reads the BMC's power state. Without a BMC a switch whose operating
// system answers is on; one that answers badly is unknown, and of one that does
// not answer the error tells what is certain.
func (s *Switches) powerGet(ctx context.Context, sw *device.Switch, _ *rackbusv1.NodeRequest) (*rackbusv1.NodeReply, error) {
	if bmc, ok := sw.BMC(); ok {
		reading, err := bmc.PowerState(ctx)
		if err != nil {
			return nil, err
		}
		return &rackbusv1.NodeReply{V: 1, PowerState: string(reading.State)}, nil
	}
	err := greet(ctx, sw)
	var answered *nvue.Error
	switch {
	case err == nil:
		return &rackbusv1.NodeReply{V: 1, PowerState: string(redfish.PowerStateOn)}, nil
	case errors.As(err, &answered) && answered.Status != 0:
		return &rackbusv1.NodeReply{V: 1, PowerState: string(redfish.PowerStateUnknown)}, nil
	default:
		return nil, err
	}
}

// powerSet: the operations have the same numbers in the published API. Without a
// BMC a switch can only be power-cycled, by its own operating system.
func (s *Switches) powerSet(ctx context.Context, sw *device.Switch, req *rackbusv1.NodeRequest) (*rackbusv1.NodeReply, error) {
	op := redfish.PowerOp(req.GetPowerOperation())
	if bmc, ok := sw.BMC(); ok {
		if err := bmc.Power(ctx, op); err != nil {
			return nil, err
		}
		return &rackbusv1.NodeReply{V: 1}, nil
	}
	if op != redfish.PowerReset {
		return nil, fmt.Errorf("%w: without a BMC a switch can only be power-cycled, not %s", device.ErrTarget, op)
	}
	if err := sw.Initialize(ctx); err != nil {
		return nil, err
	}
	if _, err := sw.NVUE.StartAction(ctx, nvue.PowerCycle()); err != nil {
		return nil, err
	}
	return &rackbusv1.NodeReply{V: 1}, nil
}

// greet makes sure that NVOS is up and knows us.
func greet(ctx context.Context, sw *device.Switch) error {
	if err := sw.Initialize(ctx); err != nil {
		return err
	}
	return sw.NVUE.Hello(ctx)
}

func hello(ctx context.Context, sw *device.Switch, _ *rackbusv1.NodeRequest) (*rackbusv1.NodeReply, error) {
	if err := greet(ctx, sw); err != nil {
		return nil, err
	}
	return &rackbusv1.NodeReply{V: 1}, nil
}

func deviceInfo(ctx context.Context, sw *device.Switch, _ *rackbusv1.NodeRequest) (*rackbusv1.NodeReply, error) {
	if err := sw.Initialize(ctx); err != nil {
		return nil, err
	}
	at, err := sw.NVUE.ChassisLocation(ctx)
	if err != nil {
		return nil, err
	}
	return &rackbusv1.NodeReply{V: 1, DeviceInfo: &rackbusv1.DeviceInfo{
		ChassisSn: number[int64](at.ChassisSN, 64), SlotNumber: number[uint32](at.SlotNumber, 32), TrayIndex: number[uint32](at.TrayIndex, 32),
	}}, nil
}

// number is nil for a text that is no number of the type.
func number[T int64 | uint32](text string, bits int) *T {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || bits == 32 && (n < 0 || n > 1<<32-1) {
		return nil
	}
	v := T(n)
	return &v
}

// firmwareInventory lists the components and, behind them, the image that runs.
func (s *Switches) firmwareInventory(ctx context.Context, sw *device.Switch, _ *rackbusv1.NodeRequest) (*rackbusv1.NodeReply, error) {
	if err := sw.Initialize(ctx); err != nil {
		return nil, err
	}
	inventory, err := firmware.ReadInventory(ctx, sw.NVUE.WithRequestLimit(s.opts.Timing.InventoryTimeout))
	if err != nil {
		return nil, err
	}
	reply := &rackbusv1.NodeReply{V: 1}
	for _, name := range slices.Sorted(maps.Keys(inventory.Components)) {
		c := inventory.Components[name]
		reply.Firmware = append(reply.Firmware, &rackbusv1.FirmwareEntry{
			Name: name, Version: c.Version, Health: c.Health, Updateable: firmware.Updateable(name),
			Target: "/nvue_v1/platform/firmware/" + name,
		})
	}
	reply.Firmware = append(reply.Firmware, &rackbusv1.FirmwareEntry{
		Name: firmware.ImageRow, Version: inventory.Image.CurrentBuild, Updateable: true, Target: "/nvue_v1/system/image",
	})
	return reply, nil
}

// listFirmware gives a component as the switch shows it.
func listFirmware(ctx context.Context, sw *device.Switch, req *rackbusv1.NodeRequest) (*rackbusv1.NodeReply, error) {
	if err := sw.Initialize(ctx); err != nil {
		return nil, err
	}
	component, err := firmware.Listed(req.GetSwitchFirmware().GetComponent())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", device.ErrTarget, err)
	}
	raw, err := sw.NVUE.FirmwareComponent(ctx, component)
	if err != nil {
		return nil, err
	}
	return &rackbusv1.NodeReply{V: 1, ResultJson: string(raw)}, nil
}

// listImages gives the image files as the switch shows them.
func listImages(ctx context.Context, sw *device.Switch, _ *rackbusv1.NodeRequest) (*rackbusv1.NodeReply, error) {
	if err := sw.Initialize(ctx); err != nil {
		return nil, err
	}
	raw, err := sw.NVUE.ImageFiles(ctx)
	if err != nil {
		return nil, err
	}
	return &rackbusv1.NodeReply{V: 1, ResultJson: string(raw)}, nil
}

// pushFirmware puts a file into the folder of a component. Nothing is installed.
func (s *Switches) pushFirmware(ctx context.Context, sw *device.Switch, req *rackbusv1.NodeRequest) (*rackbusv1.NodeReply, error) {
	p := req.GetSwitchFirmware()
	if err := sw.Initialize(ctx); err != nil {
		return nil, err
	}
	if _, err := firmware.Listed(p.GetComponent()); err != nil {
		return nil, fmt.Errorf("%w: %w", device.ErrTarget, err)
	}
	if err := s.firmware.Push(ctx, sw, firmware.PushFile{
		Component: p.GetComponent(), Name: p.GetFilename(), File: p.GetFile(), Size: p.GetSizeBytes(), SHA256: p.GetSha256(),
	}); err != nil {
		return nil, err
	}
	return &rackbusv1.NodeReply{V: 1}, nil
}
