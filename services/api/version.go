// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"

	"github.com/rackbus/rackbus/pkg/telemetry"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// GetVersion answers whatever the state of the bus is: clients probe with it.
func (m *rackManager) GetVersion(context.Context, *rackmanager.GetVersionRequest) (*rackmanager.GetVersionResponse, error) {
	return &rackmanager.GetVersionResponse{Version: telemetry.Version()}, nil
}
