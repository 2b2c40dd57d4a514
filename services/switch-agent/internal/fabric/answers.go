// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"encoding/json"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
)

// The synchronous operations.
const (
	// OpConfigure makes the switch the manager of a fabric: request and reply carry
	// fabric_manager. Failures are in the reply, with how far it got.
	OpConfigure = "fabric_configure"
	// OpStateSet switches the cluster on or off: the request carries fabric_switch.
	OpStateSet = "fabric_state_set"
	// OpStateGet gives the state of the cluster as result_json.
	OpStateGet = "fabric_state_get"
	// OpServiceStatus gives the state of nmx-controller as result_json.
	OpServiceStatus = "fabric_service_status"
	// OpTelemetrySet switches the gNMI server on or off: the request carries
	// fabric_switch, the reply result_json.
	OpTelemetrySet = "fabric_telemetry_set"
	// OpStatus gives the switch's part of the fabric as fabric_status, and that it
	// cannot be read as well.
	OpStatus = "fabric_status"
)

// Operation answers a synchronous request on one switch, which was opened with the
// domain and under the guard of the request. It always returns a reply.
type Operation func(ctx context.Context, sw Switch, req *rackbusv1.NodeRequest) *rackbusv1.NodeReply

// Answers are the synchronous operations by their names.
func Answers(t Timing) map[string]Operation {
	return map[string]Operation{
		OpConfigure: func(ctx context.Context, sw Switch, req *rackbusv1.NodeRequest) *rackbusv1.NodeReply {
			out := &rackbusv1.FabricManagerReply{}
			if err := sw.Initialize(ctx); err != nil {
				out.Message = err.Error()
			} else {
				out = NewCluster(sw, t).ConfigureManager(ctx, req.GetFabricManager().GetTopology())
			}
			return &rackbusv1.NodeReply{V: 1, SwitchResult: &rackbusv1.NodeReply_FabricManager{FabricManager: out}}
		},
		OpStatus: func(ctx context.Context, sw Switch, _ *rackbusv1.NodeRequest) *rackbusv1.NodeReply {
			out := &rackbusv1.FabricSwitchStatus{}
			if err := sw.Initialize(ctx); err != nil {
				out.Error = err.Error()
			} else {
				out = NewCluster(sw, t).StatusWithConfig(ctx)
			}
			return &rackbusv1.NodeReply{V: 1, SwitchResult: &rackbusv1.NodeReply_FabricStatus{FabricStatus: out}}
		},
		OpStateSet: answer(t, func(ctx context.Context, c *Cluster, req *rackbusv1.NodeRequest) (json.RawMessage, error) {
			_, err := c.SetState(ctx, req.GetFabricSwitch().GetEnabled())
			return nil, err
		}),
		OpStateGet: answer(t, func(ctx context.Context, c *Cluster, _ *rackbusv1.NodeRequest) (json.RawMessage, error) {
			return c.StateDocument(ctx)
		}),
		OpServiceStatus: answer(t, func(ctx context.Context, c *Cluster, _ *rackbusv1.NodeRequest) (json.RawMessage, error) {
			return c.ServiceDocument(ctx, nvue.AppController)
		}),
		OpTelemetrySet: answer(t, func(ctx context.Context, c *Cluster, req *rackbusv1.NodeRequest) (json.RawMessage, error) {
			on := req.GetFabricSwitch().GetEnabled()
			if _, err := c.SetTelemetryInterface(ctx, on); err != nil {
				return nil, err
			}
			return json.Marshal(map[string]string{"status": "success", "state": onOff(on)})
		}),
	}
}

// answer answers with a document, or with why there is none.
func answer(t Timing, do func(context.Context, *Cluster, *rackbusv1.NodeRequest) (json.RawMessage, error)) Operation {
	return func(ctx context.Context, sw Switch, req *rackbusv1.NodeRequest) *rackbusv1.NodeReply {
		if err := sw.Initialize(ctx); err != nil {
			return refuse(err)
		}
		doc, err := do(ctx, NewCluster(sw, t), req)
		if err != nil {
			return refuse(err)
		}
		return &rackbusv1.NodeReply{V: 1, ResultJson: string(doc)}
	}
}
