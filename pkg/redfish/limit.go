// SPDX-License-Identifier: Apache-2.0

package redfish

import "time"

// UploadLimit is how long the upload of an image of size bytes may take, the
// device's answer included.
func (c *Client) UploadLimit(size int64) time.Duration {
	return c.timing.uploadBudget(size) + c.timing.UploadAnswer
}

// UnitLimit is how long the update of one power unit with an image of size bytes
// may take.
func (c *Client) UnitLimit(size int64) time.Duration {
	return c.UploadLimit(size) + c.timing.PowerUnitLimit
}

// StepLimit is how long a step of an activation may take: its waits, and the tries
// of a power command that the device could not take.
func (c *Client) StepLimit(step Step) time.Duration {
	t := &c.timing
	command := time.Duration(max(t.StepAttempts-1, 0))*t.StepInterval + t.Request
	switch step {
	case StepForceOff, StepPowerOn:
		return command
	case StepWaitOff:
		return t.PowerOffLimit
	case StepPauseOff:
		return t.PowerOffSettle
	case StepAuxCycle:
		return t.Collection + t.BMCLimit
	case StepAuxSettle:
		return t.AuxSettle
	case StepWaitBMC:
		return t.BMCLimit
	case StepWaitOn:
		return t.PowerOnLimit
	case StepKeepOn:
		return t.PowerOnLongLimit
	case StepManagerReset:
		return t.Request
	case StepWaitManager:
		return t.ManagerLimit
	default:
		return 0
	}
}
