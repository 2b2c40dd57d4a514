// SPDX-License-Identifier: Apache-2.0

package redfishagent

import (
	"context"
	"errors"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/credentials"
	"github.com/rackbus/rackbus/pkg/redfish"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// Operations that agents answer.
const (
	OpPowerGet          = "power_get"
	OpPowerSet          = "power_set"
	OpFirmwareInventory = "firmware_inventory"
	OpDeviceInfo        = "device_info"
)

// Queries are the synchronous operations of Redfish devices.
func (d *Devices) Queries() map[string]agent.QueryHandler {
	return map[string]agent.QueryHandler{
		OpPowerGet:          d.query(powerGet),
		OpPowerSet:          d.query(powerSet),
		OpFirmwareInventory: d.query(firmwareInventory),
		OpDeviceInfo:        d.query(deviceInfo),
	}
}

type queryFunc func(ctx context.Context, c *redfish.Client, req *rackbusv1.NodeRequest) (*rackbusv1.NodeReply, error)

func (d *Devices) query(run queryFunc) agent.QueryHandler {
	return func(ctx context.Context, q *agent.Query) *rackbusv1.NodeReply {
		c, err := d.client(q, d.userAgent(nil), q.Log)
		if err != nil {
			return refuse(err)
		}
		reply, err := run(ctx, c, q.Request)
		if err != nil {
			q.Log.Warn("query failed", "err", err)
			return refuse(err)
		}
		return reply
	}
}

func powerGet(ctx context.Context, c *redfish.Client, _ *rackbusv1.NodeRequest) (*rackbusv1.NodeReply, error) {
	reading, err := c.PowerState(ctx)
	if err != nil {
		return nil, err
	}
	return &rackbusv1.NodeReply{V: 1, PowerState: string(reading.State)}, nil
}

// powerSet: the operations have the same numbers in the published API.
func powerSet(ctx context.Context, c *redfish.Client, req *rackbusv1.NodeRequest) (*rackbusv1.NodeReply, error) {
	if err := c.Power(ctx, redfish.PowerOp(req.GetPowerOperation())); err != nil {
		return nil, err
	}
	return &rackbusv1.NodeReply{V: 1}, nil
}

func firmwareInventory(ctx context.Context, c *redfish.Client, _ *rackbusv1.NodeRequest) (*rackbusv1.NodeReply, error) {
	items, err := c.FirmwareInventory(ctx)
	if err != nil {
		return nil, err
	}
	reply := &rackbusv1.NodeReply{V: 1, Firmware: make([]*rackbusv1.FirmwareEntry, len(items))}
	for i, item := range items {
		reply.Firmware[i] = &rackbusv1.FirmwareEntry{
			Name: item.Name, Version: item.Version, Updateable: item.Updateable, Target: item.URI,
			Health: string(item.Health), FirmwareType: int32(item.Type),
		}
	}
	return reply, nil
}

// deviceInfo is empty for shelves, which tell no place.
func deviceInfo(ctx context.Context, c *redfish.Client, _ *rackbusv1.NodeRequest) (*rackbusv1.NodeReply, error) {
	if c.Profile().Kind != redfish.KindCompute {
		return &rackbusv1.NodeReply{V: 1}, nil
	}
	info, err := c.DeviceInfo(ctx)
	if err != nil {
		return nil, err
	}
	return &rackbusv1.NodeReply{V: 1, DeviceInfo: &rackbusv1.DeviceInfo{
		ChassisSn: info.ChassisSerial, SlotNumber: info.SlotNumber, TrayIndex: info.TrayIndex,
	}}, nil
}

// refuse turns an error into the reply that names it.
func refuse(err error) *rackbusv1.NodeReply {
	var inventory *redfish.InventoryError
	if errors.As(err, &inventory) {
		// Whatever became of the entries it names, the inventory is not whole.
		return agent.Refuse(string(redfish.CodeUnavailable), err.Error(), "")
	}
	var device *redfish.Error
	if errors.As(err, &device) && noConnection(err) {
		return agent.Refuse(agent.CodeUnreachable, err.Error(), "")
	}
	if errors.As(err, &device) {
		return agent.Refuse(string(device.Code), err.Error(), device.MessageID)
	}
	if errors.Is(err, credentials.ErrNone) || errors.Is(err, errNodeType) {
		return agent.Refuse(agent.CodeInvalidArgument, err.Error(), "")
	}
	return agent.Refuse(agent.CodeInternal, err.Error(), "")
}
