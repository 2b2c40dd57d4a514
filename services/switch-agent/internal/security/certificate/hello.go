// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"context"
	"errors"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/switchtls"
	"github.com/rackbus/rackbus/services/switch-agent/internal/channel"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/gnmi"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nmxc"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security"
)

// Keys of the tests in result_json.
const (
	testNVUE = "nvue_hello_test"
	testNMX  = "hello_test"
	testGNMI = "gnmi_capabilities_test"
)

// Greeter greets the services of a switch over the network.
type Greeter struct {
	// Gateway is how we name ourselves to the controller; default nmxc.DefaultGateway.
	Gateway string
	NMXC    nmxc.Timing
	GNMI    gnmi.Timing
}

// Controller says hello to the fabric controller.
func (g Greeter) Controller(ctx context.Context, sw *device.Switch, own *switchtls.Material) error {
	client, err := nmxc.Open(ctx, nmxc.Options{
		Address: sw.NMXController(), Security: channel.Security{Material: own, ServerName: sw.ServerName()},
		Gateway: g.Gateway, Timing: g.NMXC,
	})
	if err == nil {
		client.Close()
	}
	return err
}

// Telemetry asks the telemetry interface for its capabilities.
func (g Greeter) Telemetry(ctx context.Context, sw *device.Switch, own *switchtls.Material) error {
	return gnmi.Capabilities(ctx, gnmi.Options{
		Address: sw.GNMI(), Material: own, ServerName: sw.ServerName(),
		Username: sw.Login.User, Password: sw.Login.Password, Timing: g.GNMI,
	})
}

// notConnected reports that no connection came up, as against a call that failed.
func notConnected(err error) bool { return errors.As(err, new(*channel.Error)) }

// helloStages greet the services with our own certificate, where that was asked for.
func (w *work) helloStages() []agent.Stage {
	if !w.cmd.GetTestHello() {
		return nil
	}
	var out []agent.Stage
	add := func(name, description string, run func(context.Context) error) {
		out = append(out, agent.Stage{Name: name, Description: description, Resume: agent.Repeatable, Run: run})
	}
	if w.wants(security.ServiceNVUE) {
		add(stageHelloNVUE, "Testing the NVUE connection", w.helloNVUE)
	}
	if w.wants(security.ServiceManager) {
		add(stageHelloNMX, "Testing the connection to the fabric manager", w.helloController)
	}
	if w.wants(security.ServiceGNMI) {
		add(stageHelloGNMI, "Testing the connection to the telemetry interface", w.helloTelemetry)
	}
	return out
}

func (w *work) helloNVUE(ctx context.Context) error {
	w.state.Details.Set(stageHelloNVUE, map[string]any{"switch_host": w.sw.Address, "tls_authority": w.sw.ServerName()})
	err := w.greet(ctx, lost, func(ctx context.Context) error { return w.sw.NVUE.Hello(ctx) })
	return w.greeted(testNVUE, err)
}

func (w *work) helloController(ctx context.Context) error {
	w.state.Details.Set(stageHelloNMX, map[string]any{"switch_host": w.sw.Address, "switch_host_port": w.sw.NMXController()})
	if w.cmd.GetFabricElsewhere() {
		return &skippedError{elsewhere}
	}
	if w.opts.Cluster == nil {
		return agent.Fail(job.FailureAgentNotEquipped, stageHelloNMX, "this agent has no steps for apps of the cluster", nil)
	}
	cluster := w.opts.Cluster(w.sw)
	if _, err := cluster.SetState(ctx, true); err != nil {
		return fabricFailure(stageHelloNMX, err)
	}
	if _, err := cluster.SetGRPC(ctx, nvue.AppController, true); err != nil {
		return fabricFailure(stageHelloNMX, err)
	}
	if err := cluster.AwaitReady(ctx, nvue.AppController); err != nil {
		return fabricFailure(stageHelloNMX, err)
	}
	return w.greeted(testNMX, w.greetWith(ctx, stageHelloNMX, w.opts.Services.Controller))
}

func (w *work) helloTelemetry(ctx context.Context) error {
	w.state.Details.Set(stageHelloGNMI, map[string]any{"switch_host": w.sw.Address, "tls_authority": w.sw.ServerName()})
	return w.greeted(testGNMI, w.greetWith(ctx, stageHelloGNMI, w.opts.Services.Telemetry))
}

// greetWith greets a service with our own material.
func (w *work) greetWith(
	ctx context.Context, stage string, greet func(context.Context, *device.Switch, *switchtls.Material) error,
) error {
	own, err := w.own()
	if err != nil {
		return agent.Fail(failureOf(err), stage, err.Error(), err)
	}
	err = w.greet(ctx, notConnected, func(ctx context.Context) error { return greet(ctx, w.sw, own) })
	if err != nil && notConnected(err) {
		return device.Failure(stage, "", job.FailureHostUnreachable, err)
	}
	return device.Failure(stage, "", job.FailureBMCRefused, err)
}

// greet tries again while again says that the connection may still come up.
func (w *work) greet(ctx context.Context, again func(error) bool, try func(context.Context) error) error {
	for n := 1; ; n++ {
		err := try(ctx)
		if err == nil || n >= w.timing.HelloTries || ctx.Err() != nil || !again(err) {
			return err
		}
		if err := w.t.Sleep(ctx, w.timing.HelloPause); err != nil {
			return err
		}
	}
}

func (w *work) greeted(test string, err error) error {
	if err != nil {
		return err
	}
	if w.state.Greeted == nil {
		w.state.Greeted = map[string]string{}
	}
	w.state.Greeted[test] = "success"
	return w.t.Set(w.state)
}
