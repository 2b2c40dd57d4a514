// SPDX-License-Identifier: Apache-2.0

package job

import (
	"google.golang.org/protobuf/types/known/durationpb"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// rolloutToProto returns the rollout as a message, nil for nil. The message shares
// its bytes.
func rolloutToProto(o *Rollout) *rackbusv1.Rollout {
	if o == nil {
		return nil
	}
	p := &o.Plan
	m := &rackbusv1.Rollout{
		Plan: &rackbusv1.RolloutPlan{
			WaveSize: p.WaveSize, WavePercent: p.WavePercent, Spread: rackbusv1.RolloutSpread(p.Spread),
			MaxFailures: p.MaxFailures, MaxFailurePercent: p.MaxFailurePercent, Confirm: p.Confirm,
		},
		State: rackbusv1.RolloutState(o.State), Wave: o.Wave, Waves: o.Waves, Released: o.Released, Members: o.Members,
		Places: o.Places, Reason: text(o.Reason), RequestedBy: text(o.RequestedBy), NextWaveAt: timestamp(o.NextWaveAt),
		Stop: rackbusv1.RolloutStop(o.Stop),
	}
	if p.Pause > 0 {
		m.Plan.Pause = durationpb.New(p.Pause)
	}
	m.ProtoReflect().SetUnknown(o.unknown)
	m.Plan.ProtoReflect().SetUnknown(o.unknownPlan)
	return m
}

func (d *decoder) rollout(m *rackbusv1.Rollout) *Rollout {
	if m == nil {
		return nil
	}
	p := m.GetPlan()
	if p.GetWaveSize() == 0 && p.GetWavePercent() == 0 {
		d.fail("rollout without a size of its waves")
		return nil
	}
	o := &Rollout{
		Plan: RolloutPlan{
			WaveSize: p.GetWaveSize(), WavePercent: p.GetWavePercent(),
			Spread:      RolloutSpread(d.enum("rollout spread", int32(p.GetSpread()), int32(spreadCount))),
			MaxFailures: p.MaxFailures, MaxFailurePercent: p.MaxFailurePercent, Confirm: p.GetConfirm(),
			Pause: p.GetPause().AsDuration(),
		},
		State: RolloutState(d.enum("rollout state", int32(m.GetState()), int32(rolloutStateCount))),
		Wave:  m.GetWave(), Waves: m.GetWaves(), Released: m.GetReleased(), Members: m.GetMembers(), Places: m.GetPlaces(),
		Reason: m.GetReason(), RequestedBy: m.GetRequestedBy(), NextWaveAt: instant(m.GetNextWaveAt()),
		Stop:    RolloutStop(d.enum("rollout stop", int32(m.GetStop()), int32(rolloutStopCount))),
		unknown: m.ProtoReflect().GetUnknown(), unknownPlan: p.ProtoReflect().GetUnknown(),
	}
	return o
}
