// SPDX-License-Identifier: Apache-2.0

package redfish

import "time"

// Timing holds every wait, interval, limit and attempt count of the package.
// A zero field takes its default, so the zero Timing is usable. The defaults are
// those proven on GB200, GB300 and VR NVL72 trays and on LiteOn and Delta shelves.
type Timing struct {
	// Request bounds one ordinary request, answer included. 30 s.
	Request time.Duration
	// Collection bounds the GET of a collection or of one of its members; an
	// aggregating BMC asks other controllers for them. 120 s.
	Collection time.Duration

	// UploadTotal is the least time any upload may take. 900 s.
	UploadTotal time.Duration
	// UploadMinRate, in bytes per second, extends UploadTotal for large images
	// to size/UploadMinRate. 128 KiB/s.
	UploadMinRate int64
	// UploadStall fails an upload of which no byte was taken for so long. 60 s.
	UploadStall time.Duration
	// UploadAnswer bounds the wait for the answer after the last byte; BMCs
	// verify the image before they answer. 5 min.
	UploadAnswer time.Duration

	// PowerOnConflictAttempts and PowerOnConflictInterval repeat a power-on that
	// the device refused as conflicting with a transition under way. 6, 10 s.
	PowerOnConflictAttempts int
	PowerOnConflictInterval time.Duration

	// DeviceInfo bounds the whole search for the NVLink topology. 300 s.
	DeviceInfo time.Duration

	// InventoryAttempts and InventoryInterval repeat the read of the firmware
	// inventory collection before an update. 3, 30 s.
	InventoryAttempts int
	InventoryInterval time.Duration
	// BackgroundCopyLimit and BackgroundCopyInterval govern the wait for ERoT
	// background copies. 900 s, 10 s.
	BackgroundCopyLimit    time.Duration
	BackgroundCopyInterval time.Duration
	// ReadyReads good reads of the update service in a row, ReadyInterval apart,
	// show that it is ready; ReadyLimit ends the wait. 3, 5 s, 5 min.
	ReadyReads    int
	ReadyInterval time.Duration
	ReadyLimit    time.Duration

	// PowerUnitLimit bounds the update of one LiteOn power unit, PowerUnitPoll
	// is the gap between looks at it. 1800 s, 5 s.
	PowerUnitLimit time.Duration
	PowerUnitPoll  time.Duration
	// PowerUnitsLimit and PowerUnitsInterval govern the validation of all units
	// after an update of all at once. 300 s, 15 s.
	PowerUnitsLimit    time.Duration
	PowerUnitsInterval time.Duration

	// PowerUnitsAttempts and PowerUnitsPause repeat the push to all LiteOn power
	// units at once while the shelf cannot take it. 3, 10 s.
	PowerUnitsAttempts int
	PowerUnitsPause    time.Duration

	// PreserveAttempts and PreserveInterval repeat the setting that makes a BMC
	// keep its configuration, PreserveSettle is the pause before it is read back.
	// 5, 10 s, 1 s.
	PreserveAttempts int
	PreserveInterval time.Duration
	PreserveSettle   time.Duration

	// StepAttempts and StepInterval repeat a power command of an activation that
	// the device could not take. 10, 60 s.
	StepAttempts int
	StepInterval time.Duration
	// PowerPoll is the gap between power reads while waiting. 5 s.
	PowerPoll time.Duration
	// PowerOffLimit bounds the wait for Off. 60 s.
	PowerOffLimit time.Duration
	// PowerOffSettle is the pause after a ForceOff that is not verified. 20 s.
	PowerOffSettle time.Duration
	// AuxSettle is the pause after an AUX cycle that is not probed. 180 s.
	AuxSettle time.Duration
	// PowerOnLimit bounds the wait for On after a settled AUX cycle. 60 s.
	PowerOnLimit time.Duration
	// PowerOnLongLimit bounds the wait for On where On is repeated every
	// PowerOnRepeat while the host reads Off. 300 s, 60 s.
	PowerOnLongLimit time.Duration
	PowerOnRepeat    time.Duration
	// BMCProbe is the gap between probes of a BMC after an AUX cycle, BMCLimit
	// bounds the wait. 5 s, 300 s.
	BMCProbe time.Duration
	BMCLimit time.Duration

	// ManagerProbe and ManagerLimit govern the wait for a manager after its
	// reset was accepted. 15 s, 1785 s.
	ManagerProbe time.Duration
	ManagerLimit time.Duration
	// ManagerLostProbe and ManagerLostLimit do so when the answer to the reset
	// was lost. 5 s, 120 s.
	ManagerLostProbe time.Duration
	ManagerLostLimit time.Duration
	// ManagerProbeTimeout bounds one such probe. 5 s.
	ManagerProbeTimeout time.Duration
	// ManagerSteady is how long a manager that accepted its reset has to answer
	// without a gap to count as restarted between two probes. 180 s.
	ManagerSteady time.Duration
}

func (t Timing) withDefaults() Timing {
	for _, f := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&t.Request, 30 * time.Second},
		{&t.Collection, 120 * time.Second},
		{&t.UploadTotal, 900 * time.Second},
		{&t.UploadStall, 60 * time.Second},
		{&t.UploadAnswer, 5 * time.Minute},
		{&t.PowerOnConflictInterval, 10 * time.Second},
		{&t.DeviceInfo, 300 * time.Second},
		{&t.InventoryInterval, 30 * time.Second},
		{&t.BackgroundCopyLimit, 900 * time.Second},
		{&t.BackgroundCopyInterval, 10 * time.Second},
		{&t.ReadyInterval, 5 * time.Second},
		{&t.ReadyLimit, 5 * time.Minute},
		{&t.PowerUnitLimit, 1800 * time.Second},
		{&t.PowerUnitPoll, 5 * time.Second},
		{&t.PowerUnitsLimit, 300 * time.Second},
		{&t.PowerUnitsInterval, 15 * time.Second},
		{&t.PowerUnitsPause, 10 * time.Second},
		{&t.PreserveInterval, 10 * time.Second},
		{&t.PreserveSettle, time.Second},
		{&t.StepInterval, 60 * time.Second},
		{&t.PowerPoll, 5 * time.Second},
		{&t.PowerOffLimit, 60 * time.Second},
		{&t.PowerOffSettle, 20 * time.Second},
		{&t.AuxSettle, 180 * time.Second},
		{&t.PowerOnLimit, 60 * time.Second},
		{&t.PowerOnLongLimit, 300 * time.Second},
		{&t.PowerOnRepeat, 60 * time.Second},
		{&t.BMCProbe, 5 * time.Second},
		{&t.BMCLimit, 300 * time.Second},
		{&t.ManagerProbe, 15 * time.Second},
		{&t.ManagerLimit, 1785 * time.Second},
		{&t.ManagerLostProbe, 5 * time.Second},
		{&t.ManagerLostLimit, 120 * time.Second},
		{&t.ManagerProbeTimeout, 5 * time.Second},
		{&t.ManagerSteady, 180 * time.Second},
	} {
		if *f.field <= 0 {
			*f.field = f.value
		}
	}
	for _, f := range []struct {
		field *int
		value int
	}{
		{&t.PowerOnConflictAttempts, 6},
		{&t.InventoryAttempts, 3},
		{&t.ReadyReads, 3},
		{&t.PowerUnitsAttempts, 3},
		{&t.PreserveAttempts, 5},
		{&t.StepAttempts, 10},
	} {
		if *f.field <= 0 {
			*f.field = f.value
		}
	}
	if t.UploadMinRate <= 0 {
		t.UploadMinRate = 128 << 10
	}
	return t
}

// uploadBudget is the total time an upload of size bytes may take.
func (t Timing) uploadBudget(size int64) time.Duration {
	bySize := time.Duration(size/t.UploadMinRate) * time.Second
	return max(t.UploadTotal, bySize)
}
