// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/rackbus/rackbus/pkg/diagnostics"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nmxc"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
)

// Conditions of an app, as rules look at them.
const (
	appUp        = "up"
	appDown      = "down"
	appMissing   = "not_installed"
	appNotWanted = "cluster_off"
)

// statusOK is what an app that runs reports.
const statusOK = "ok"

type clusterFile struct {
	Enabled bool `json:"enabled"`
	// Connection is that to the controller, in the switch's word.
	Connection string          `json:"connection"`
	Document   json.RawMessage `json:"document"`
	Apps       []appFile       `json:"apps"`
}

type appFile struct {
	Name      string `json:"name"`
	Condition string `json:"condition"`
	// Told is name, status and reason in one line.
	Told     string          `json:"told"`
	Document json.RawMessage `json:"document,omitempty"`
}

// cluster collects the cluster and its apps.
func (s *survey) cluster(ctx context.Context, into diagnostics.Sink) error {
	api, err := s.api(ctx)
	if err != nil {
		return err
	}
	now, err := api.Cluster(ctx)
	if errors.Is(err, nvue.ErrNotFound) {
		return diagnostics.Skip("the switch has no cluster")
	}
	if err != nil {
		return err
	}
	out := clusterFile{Enabled: now.Enabled(), Connection: now.Connection, Document: now.Raw}
	var failed []error
	for _, name := range []string{nvue.AppController, nvue.AppTelemetry} {
		app, err := api.App(ctx, name)
		if err != nil && !errors.Is(err, nvue.ErrNotFound) {
			if ctx.Err() != nil || device.Passes(err) {
				return err
			}
			failed = append(failed, err)
			continue
		}
		out.Apps = append(out.Apps, appIn(now, name, app, err == nil))
	}
	return errors.Join(append(failed, into.JSON("nvue/cluster.json", out))...)
}

func appIn(now nvue.Cluster, name string, app nvue.App, installed bool) appFile {
	out := appFile{Name: name, Told: name + " is not installed", Condition: appMissing, Document: app.Raw}
	if installed {
		out.Told = name + " reports " + app.Status
		for _, more := range []string{app.Reason, app.Info} {
			if more != "" {
				out.Told += ", " + more
			}
		}
		out.Condition = appDown
		if app.Status == statusOK && !app.ControlPlaneIsStopped() {
			out.Condition = appUp
		}
	}
	if !now.Enabled() {
		out.Condition = appNotWanted
	}
	return out
}

type fabricFile struct {
	Reachable  bool        `json:"reachable"`
	Error      string      `json:"error,omitempty"`
	DomainUUID string      `json:"domain_uuid,omitempty"`
	AppUUID    string      `json:"app_uuid,omitempty"`
	Version    string      `json:"version,omitempty"`
	Config     nmxc.Config `json:"static_config,omitempty"`
}

// fabric collects what the controller says, of a switch on which it is to answer.
func (s *survey) fabric(ctx context.Context, into diagnostics.Sink) error {
	api, err := s.api(ctx)
	if err != nil {
		return err
	}
	switch now, err := api.Cluster(ctx); {
	case err != nil && !errors.Is(err, nvue.ErrNotFound):
		return err
	case err != nil || !now.Enabled():
		return diagnostics.Skip("the switch takes no part in a fabric")
	}
	switch app, err := api.App(ctx, nvue.AppController); {
	case err != nil && !errors.Is(err, nvue.ErrNotFound):
		return err
	case err != nil || !open(app.ManagerState):
		return diagnostics.Skip("the controller's port is closed on this switch")
	}
	ctl, err := s.options.Fabric.Controller(ctx)
	if err != nil {
		if ctx.Err() != nil || device.Passes(err) {
			return err
		}
		return errors.Join(err, into.JSON("fabric.json", fabricFile{Error: err.Error()}))
	}
	defer ctl.Close()
	who := ctl.Identity()
	out := fabricFile{Reachable: true, DomainUUID: who.DomainUUID, AppUUID: who.AppUUID, Version: who.Version}
	out.Config, err = ctl.Files(ctx, nmxc.FileFabric, nmxc.FileSubnet)
	if errors.Is(err, nmxc.ReturnNotConfigured) {
		err = nil
	}
	return errors.Join(err, into.JSON("fabric.json", out))
}

// open reports whether the manager of an app listens.
func open(state string) bool { return state == "enabled" || state == "start" || state == "active" }
