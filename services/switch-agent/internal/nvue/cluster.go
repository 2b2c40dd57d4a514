// SPDX-License-Identifier: Apache-2.0

package nvue

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// The apps of the cluster.
const (
	AppController = "nmx-controller"
	AppTelemetry  = "nmx-telemetry"
)

// The states of the control plane that an app reports as additional information.
// Others, such as CONTROL_PLANE_STATE_STARTING, are transitional.
const (
	ControlPlaneConfigured   = "CONTROL_PLANE_STATE_CONFIGURED"
	ControlPlaneUnconfigured = "CONTROL_PLANE_STATE_UNCONFIGURED"
	ControlPlaneStopped      = "CONTROL_PLANE_STATE_STOPPED"

	controlPlaneStoppedOld = "STOPPED"
)

// MTLS is the encryption of an app's manager that demands client certificates.
const MTLS = "mtls"

// Cluster is the state of the scale-up fabric on one switch.
type Cluster struct {
	// State is enabled, disabled, start, or empty when the switch gave none.
	State string
	// Connection is that to the controller, for example up, down or n/a; empty when
	// the switch gave none.
	Connection string
	Raw        json.RawMessage
}

// Enabled reports whether the cluster is on.
func (c Cluster) Enabled() bool { return c.State == enabled }

// Cluster reads the state of the cluster.
func (c *Client) Cluster(ctx context.Context) (Cluster, error) {
	raw, err := c.get(ctx, "read cluster", resource("cluster"))
	if err != nil {
		return Cluster{}, err
	}
	return cluster(raw), nil
}

func cluster(raw json.RawMessage) Cluster {
	d := asDocument(raw)
	out := Cluster{State: d.layered("state"), Connection: d.text("nmxc-conn"), Raw: raw}
	if out.Connection == "" {
		out.Connection = d.object("nmxc-conn").text("state")
	}
	return out
}

// SetClusterState switches the cluster on or off. NVOS refuses to switch it off
// while node servers are configured.
func SetClusterState(on bool) Edit {
	return set("cluster state", resource("cluster"), "state", onOff(on))
}

// App is one app of the cluster.
type App struct {
	// Status is ok, not ok or stopped.
	Status string
	Reason string
	// Info is the control plane state.
	Info string
	// ManagerState is enabled, disabled, start or active.
	ManagerState      string
	ManagerEncryption string
	Raw               json.RawMessage
}

// Stopped is the strict view: it was stopped, whoever asks.
func (a App) Stopped() bool {
	return a.Status == "stopped" || a.Reason == "stopped by user" || a.ControlPlaneIsStopped()
}

// ControlPlaneIsStopped reports a control plane that does not run.
func (a App) ControlPlaneIsStopped() bool {
	return a.Info == ControlPlaneStopped || a.Info == controlPlaneStoppedOld
}

// App reads an app. ErrNotFound means that it is not installed.
func (c *Client) App(ctx context.Context, app string) (App, error) {
	raw, err := c.get(ctx, "read cluster app", appPath(app))
	if err != nil {
		return App{}, err
	}
	return appState(raw), nil
}

func appState(raw json.RawMessage) App {
	d := asDocument(raw)
	manager := d.object("manager")
	return App{
		Status: d.text("status"), Reason: d.text("reason"), Info: d.first("additional-info", "addition-info"),
		ManagerState: manager.layered("state"), ManagerEncryption: manager.layered("encryption"), Raw: raw,
	}
}

func appPath(app string, segments ...string) string {
	return resource(append([]string{"cluster", "apps", app}, segments...)...)
}

// StartApp starts an app.
func StartApp(app string) Action {
	return Action{what: "start cluster app", path: appPath(app), verb: "start"}
}

// StopApp stops an app.
func StopApp(app string) Action {
	return Action{what: "stop cluster app", path: appPath(app), verb: "stop"}
}

// ManagerState reads whether an app listens for gRPC: enabled, disabled, start or
// active.
func (c *Client) ManagerState(ctx context.Context, app string) (string, error) {
	return c.leaf(ctx, "read app manager", appPath(app, "manager"), "state")
}

// ManagerCertificate reads the id of the certificate an app serves, empty when
// there is none.
func (c *Client) ManagerCertificate(ctx context.Context, app string) (string, error) {
	return c.leaf(ctx, "read app certificate", appPath(app, "manager", "certificate"), "certificate")
}

// ManagerClientCA reads the id of the CA whose clients an app admits, empty when
// there is none.
func (c *Client) ManagerClientCA(ctx context.Context, app string) (string, error) {
	return c.leaf(ctx, "read app ca certificate", appPath(app, "manager", "ca-certificate"), "ca-certificate")
}

// ManagerEncryption reads the encryption of an app, for example MTLS.
func (c *Client) ManagerEncryption(ctx context.Context, app string) (string, error) {
	return c.leaf(ctx, "read app encryption", appPath(app, "manager", "encryption"), "encryption")
}

func updateManager(what, app, key, value string, segments ...string) Action {
	return Action{
		what: what, path: appPath(app, append([]string{"manager"}, segments...)...),
		verb: "update", params: map[string]string{key: value},
	}
}

// SetManagerState opens or closes the gRPC port of an app.
func SetManagerState(app string, on bool) Action {
	return updateManager("set app manager state", app, "state", onOff(on))
}

// SetManagerCertificate binds a certificate to an app.
func SetManagerCertificate(app, id string) Action {
	return updateManager("set app certificate", app, "cert-id", id, "certificate")
}

// SetManagerClientCA binds the CA of the clients an app admits.
func SetManagerClientCA(app, id string) Action {
	return updateManager("set app ca certificate", app, "cacert-id", id, "ca-certificate")
}

// SetManagerEncryption sets the encryption of an app.
func SetManagerEncryption(app, mode string) Action {
	return updateManager("set app encryption", app, "mode", mode, "encryption")
}

// ResetSDN returns the fabric's software-defined network to factory defaults.
func ResetSDN() Action {
	return Action{what: "reset sdn to factory defaults", path: resource("sdn", "factory-default"), verb: "reset", params: forced{true}, named: true}
}

// NodeInterface is one of the two sets of servers of a cluster node.
type NodeInterface string

// The interfaces.
const (
	NodePrimary   NodeInterface = "primary"
	NodeSecondary NodeInterface = "secondary"
)

// NodeServers reads the server addresses of an interface, sorted, in a revision
// or in the Applied configuration.
func (c *Client) NodeServers(ctx context.Context, i NodeInterface, rev Revision) ([]string, error) {
	const op = "read node servers"
	path := at(resource("cluster", "node", string(i), "server"), rev)
	raw, err := c.get(ctx, op, path)
	if err != nil {
		return nil, err
	}
	d := asDocument(raw)
	if d == nil {
		return nil, &Error{Op: op, Method: http.MethodGet, Path: path, Code: ErrBadResponse, Sent: true, reason: "the answer is no object"}
	}
	return slices.Sorted(maps.Keys(d)), nil
}

// AddNodeServers adds server addresses to an interface.
func AddNodeServers(i NodeInterface, addresses ...string) Edit {
	body := make(map[string]struct{}, len(addresses))
	for _, a := range addresses {
		body[strings.TrimSpace(a)] = struct{}{}
	}
	return Edit{what: "node servers", method: http.MethodPatch, path: resource("cluster", "node", string(i), "server"), body: body}
}

// ClearNodeServers removes all server addresses of an interface.
func ClearNodeServers(i NodeInterface) Edit {
	return Edit{what: "removal of node servers", method: http.MethodDelete, path: resource("cluster", "node", string(i))}
}
