// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
)

// StateDocument is the switch's own document on its cluster, with a verdict on it:
// cluster_healthy, and where that is false warning, and recommendation for a
// cluster that is off.
func (c *Cluster) StateDocument(ctx context.Context) (json.RawMessage, error) {
	now, err := c.api().Cluster(ctx)
	if err != nil {
		return nil, err
	}
	verdict := map[string]any{"cluster_healthy": true}
	switch {
	case now.State == "" || now.State == stateDisabled:
		verdict["cluster_healthy"] = false
		verdict["warning"] = "the cluster is disabled on this switch"
		verdict["recommendation"] = "enable the scale-up fabric before its manager is used"
	case now.Connection == "down" || now.Connection == stateDisabled:
		verdict["cluster_healthy"] = false
		verdict["warning"] = fmt.Sprintf("the connection to the controller (nmxc-conn) is %s", now.Connection)
	}
	return extended(now.Raw, verdict)
}

// ServiceDocument is the switch's own document on an app, with installed,
// health_status (green, red, or unknown for an app that is not installed) and
// status_description.
func (c *Cluster) ServiceDocument(ctx context.Context, app string) (json.RawMessage, error) {
	now, err := c.api().App(ctx, app)
	switch {
	case errors.Is(err, nvue.ErrNotFound):
		return json.Marshal(map[string]any{
			"installed": false, "health_status": "unknown", "status_description": app + " is not installed",
		})
	case err != nil:
		return nil, err
	}
	health, text := "red", fmt.Sprintf("%s reports %q", app, now.Status)
	if now.Status == "ok" {
		health, text = "green", app+" runs"
	}
	for _, more := range []string{now.Reason, now.Info} {
		if more != "" {
			text += ", " + more
		}
	}
	return extended(now.Raw, map[string]any{"installed": true, "health_status": health, "status_description": text})
}

// extended adds members to a switch's document.
func extended(raw json.RawMessage, members map[string]any) (json.RawMessage, error) {
	doc := map[string]any{}
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, fmt.Errorf("%w: the switch's answer is no object: %w", ErrUnreadable, err)
	}
	for key, value := range members {
		doc[key] = value
	}
	return json.Marshal(doc)
}

// SetTelemetryInterface switches the gNMI server on or off and waits until it
// shows it. One that is as wanted is left alone.
func (c *Cluster) SetTelemetryInterface(ctx context.Context, on bool) (changed bool, err error) {
	now, err := c.api().GNMI(ctx)
	if err != nil || now.State == onOff(on) {
		return false, err
	}
	if err := c.change(ctx, nvue.SetGNMIState(on)); err != nil {
		return true, err
	}
	state := ""
	done, err := c.timing.Converge.until(ctx, func(ctx context.Context) (bool, error) {
		now, err := c.api().GNMI(ctx)
		state = now.State
		return err == nil && state == onOff(on), err
	})
	switch {
	case done:
		return true, nil
	case err != nil:
		return true, err
	default:
		return true, fmt.Errorf("%w: the telemetry interface is %q and not %s", ErrNotConverged, state, onOff(on))
	}
}
