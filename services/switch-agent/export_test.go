// SPDX-License-Identifier: Apache-2.0

package switchagent

import (
	"github.com/rackbus/rackbus/pkg/config"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
)

// NVUETiming is what the agent makes of the configuration.
func NVUETiming(t config.SwitchTiming) nvue.Timing { return nvueTiming(t) }
