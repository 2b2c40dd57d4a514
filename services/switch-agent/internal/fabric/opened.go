// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/ssh"
	"github.com/rackbus/rackbus/pkg/switchtls"
	"github.com/rackbus/rackbus/services/switch-agent/internal/channel"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nmxc"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
)

// ControllerOptions say how the controllers of switches are talked to.
type ControllerOptions struct {
	// TLS is the material of the domains.
	TLS *switchtls.Store
	// Gateway is nmx_gateway_id; empty is the default.
	Gateway string
	Timing  nmxc.Timing
}

// On makes an opened switch fit for this package.
func On(sw *device.Switch, o ControllerOptions) Switch { return &opened{Switch: sw, options: o} }

// opened is a switch with its controller. The methods that it does not have are
// those of the device.
type opened struct {
	*device.Switch
	options ControllerOptions
}

// Node names the switch.
func (o *opened) Node() node.Ref { return o.Switch.Ref }

// API is the NVUE client.
func (o *opened) API() *nvue.Client { return o.Switch.NVUE }

// Shell logs in to the operating system.
func (o *opened) Shell() (*ssh.Client, error) { return o.Switch.SSH() }

// Insecure says that gRPC is plaintext.
func (o *opened) Insecure() bool { return o.options.TLS.Insecure() }

// AppAddress is IP address and port of an app's gRPC service.
func (o *opened) AppAddress(app string) string {
	if app == nvue.AppTelemetry {
		return o.Switch.NMXTelemetry()
	}
	return o.Switch.NMXController()
}

// Controller reads the material of the domain, which may have been renewed since
// the switch was opened.
func (o *opened) Controller() (nmxc.Options, error) {
	out := nmxc.Options{
		Address: o.Switch.NMXController(), Gateway: o.options.Gateway, Guard: o.Switch.Guard, Timing: o.options.Timing,
	}
	if o.Insecure() {
		return out, nil
	}
	material, err := o.options.TLS.Client(o.Switch.Domain())
	if err != nil {
		return out, err
	}
	out.Security = channel.Security{Material: material, ServerName: o.Switch.ServerName()}
	return out, nil
}
