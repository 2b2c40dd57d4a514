// SPDX-License-Identifier: Apache-2.0

package job

import (
	"fmt"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// decoder turns parts of messages into domain values and keeps the first fault.
type decoder struct {
	what string
	err  error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s: %w", ErrMalformed, d.what, fmt.Errorf(format, args...))
	}
}

func (d *decoder) version(v uint32) {
	if v != layoutVersion {
		d.fail("layout version %d, want %d", v, layoutVersion)
	}
}

func (d *decoder) id(text string) ID {
	id, err := ParseID(text)
	if err != nil {
		d.fail("%w", err)
	}
	return id
}

func (d *decoder) optionalID(text string) ID {
	if text == "" {
		return ID{}
	}
	return d.id(text)
}

// family reads a job's id and checks that the parent's follows from it.
func (d *decoder) family(text, parent string) ID {
	id := d.id(text)
	if up := d.optionalID(parent); d.err == nil && (id.IsTopLevel() != up.IsZero() || !up.IsZero() && up != id.Parent()) {
		d.fail("parent %q of job %s", parent, id)
	}
	return id
}

func (d *decoder) enum(name string, value, count int32) uint8 {
	if value < 0 || value >= count {
		d.fail("unknown %s %d", name, value)
		return 0
	}
	return uint8(value)
}

func (d *decoder) state(s rackbusv1.JobState) State {
	return State(d.enum("state", int32(s), int32(stateCount)))
}

func (d *decoder) failure(m *rackbusv1.JobFailure) *Failure {
	if m == nil {
		return nil
	}
	f := &Failure{
		Code:        ErrorCode(d.enum("error code", int32(m.GetCode()), int32(codeCount))),
		FailureCode: FailureCode(m.GetFailureCode()), Message: m.GetMessage(), Phase: m.GetPhase(),
	}
	if a := m.GetDevice(); a != nil {
		f.Device = &DeviceAnswer{
			MessageID: a.GetMessageId(), Message: a.GetMessage(), Severity: a.GetSeverity(),
			Resolution: a.GetResolution(), HTTPStatus: a.GetHttpStatus(),
		}
	}
	return f
}

func (d *decoder) cancel(m *rackbusv1.JobCancel) *Cancel {
	if m == nil {
		return nil
	}
	return &Cancel{
		Mode:   CancelMode(d.enum("cancel mode", int32(m.GetMode()), int32(cancelModeCount))),
		Reason: m.GetReason(), RequestedBy: m.GetRequestedBy(), RequestedAt: instant(m.GetRequestedAt()),
		Note: m.GetNote(),
	}
}

func (d *decoder) stages(ms []*rackbusv1.JobStage) []Stage {
	if len(ms) == 0 {
		return nil
	}
	stages := make([]Stage, len(ms))
	for i, m := range ms {
		stages[i] = Stage{
			Name: m.GetName(), Description: m.GetDescription(),
			Status:  StageStatus(d.enum("stage status", int32(m.GetStatus()), int32(stageStatusCount))),
			Message: m.GetMessage(), StartedAt: instant(m.GetStartedAt()), FinishedAt: instant(m.GetFinishedAt()),
			Uninterruptible: m.GetUninterruptible(), StopLimit: m.GetStopLimit().AsDuration(), SwitchesPower: m.GetSwitchesPower(),
		}
	}
	return stages
}

// children checks the size and that every entry is a state.
func (d *decoder) children(v []byte) ChildStates {
	if len(v) == 0 {
		return nil
	}
	if len(v) > MaxChildren/2 {
		d.fail("%d bytes of child states", len(v))
		return nil
	}
	for _, b := range v {
		if State(b&0x0f) >= stateCount || State(b>>4) >= stateCount {
			d.fail("child states hold %#x", b)
			return nil
		}
	}
	return v
}
