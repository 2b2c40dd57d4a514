// SPDX-License-Identifier: Apache-2.0

package job

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"
)

// RolloutState is where a rollout stands. The numbers are those of
// rackbus.v1.RolloutState.
type RolloutState uint8

const (
	// RolloutUnspecified is the state of no rollout.
	RolloutUnspecified RolloutState = iota
	// RolloutRunning means that a wave is under way.
	RolloutRunning
	// RolloutPausing means that the next wave follows at Rollout.NextWaveAt.
	RolloutPausing
	// RolloutHeld means that the next wave follows when somebody asks for it. The
	// wave before it may be under way still.
	RolloutHeld
	// RolloutStopped means that no further child is started.
	RolloutStopped
	// RolloutReleased means that no child is left to be started.
	RolloutReleased

	rolloutStateCount
)

var rolloutStateNames = [rolloutStateCount]string{"unspecified", "running", "pausing", "held", "stopped", "released"}

// String returns the name of the state.
func (s RolloutState) String() string {
	if s < rolloutStateCount {
		return rolloutStateNames[s]
	}
	return "unknown"
}

// RolloutStop is why a rollout has stopped. The numbers are those of
// rackbus.v1.RolloutStop.
type RolloutStop uint8

// Why a rollout has stopped.
const (
	RolloutStopNone RolloutStop = iota
	// RolloutStopFailures means more failures than the plan allows.
	RolloutStopFailures
	// RolloutStopAborted means that somebody has aborted it.
	RolloutStopAborted
	// RolloutStopDeadline means that its deadline passed before all had started.
	RolloutStopDeadline
	// RolloutStopCancelled means that the whole batch was asked to stop.
	RolloutStopCancelled

	rolloutStopCount
)

// Rollout is the plan of a batch and how far it is. It is never changed in place:
// records share it.
type Rollout struct {
	Plan  RolloutPlan
	State RolloutState
	// Wave is how many waves have begun, Waves how many there will be as foreseen
	// when the last one began; 0 before the first.
	Wave  uint32
	Waves uint32
	// Released are the children that may start. Their commands are stored in the
	// transaction that adds them here.
	Released ChildSet
	// Members are the children of the last wave.
	Members ChildSet
	// Places is the number of its rack or domain for each child, by child index from
	// 0; empty without a spread.
	Places []uint32
	// Reason is why the rollout is held or stopped, RequestedBy who asked for it.
	Reason      string
	RequestedBy string
	NextWaveAt  time.Time
	Stop        RolloutStop
	// unknown is as in Record, unknownPlan that of the plan.
	unknown, unknownPlan []byte
}

// NewRollout returns a rollout whose first wave follows as soon as all children are
// attached. places are those of the children that are attached at first.
func NewRollout(p RolloutPlan, places []uint32) *Rollout {
	return &Rollout{Plan: p, State: RolloutPausing, Places: places}
}

// WithPlaces returns a copy for a batch that has grown.
func (o *Rollout) WithPlaces(more []uint32) *Rollout {
	next := *o
	next.Places = slices.Concat(o.Places, more)
	return &next
}

// Errors of what people ask of a rollout. Their texts are for the caller.
var (
	// ErrNoRollout says that the job has no waves.
	ErrNoRollout = errors.New("the job does not start its nodes in waves")
	// ErrRolloutOver says that no further wave can be held or let go.
	ErrRolloutOver = errors.New("the rollout is over")
	// ErrRolloutUnderWay says that there is nothing to resume.
	ErrRolloutUnderWay = errors.New("the rollout is neither held nor pausing")
	// ErrRolloutMoved says that it is at another wave than the caller saw.
	ErrRolloutMoved = errors.New("the rollout has moved on")
)

// RolloutDue returns when somebody has to act for the rollout: to begin a wave, to
// store the commands of its children, or to end the children that will never be
// started. The zero time means at once; false that nobody has to.
func (r *Record) RolloutDue() (time.Time, bool) {
	o := r.Rollout
	if o == nil || r.State.Terminal() || !r.Admitted {
		return time.Time{}, false
	}
	switch o.State {
	case RolloutPausing:
		return o.NextWaveAt, true
	case RolloutRunning, RolloutHeld:
		return time.Time{}, len(r.RolloutPending(1)) > 0
	case RolloutStopped:
		return time.Time{}, o.Stop != RolloutStopCancelled && r.unstarted()
	default:
		return time.Time{}, false
	}
}

// unstarted reports whether a child is left that has not ended and may not start.
func (r *Record) unstarted() bool {
	for range r.RolloutUnstarted() {
		return true
	}
	return false
}

// RolloutUnstarted yields the children that have not ended and may not start yet, in
// order.
func (r *Record) RolloutUnstarted() iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		released := r.Rollout.Released
		for i := uint32(1); i <= r.Total; i++ {
			if at := int((i - 1) / 8); (i-1)%8 == 0 && at < len(released) && released[at] == 0xff {
				i += 7 // all eight
				continue
			}
			if !released.Has(i) && !r.Children.Get(i).Terminal() && !yield(i) {
				return
			}
		}
	}
}

// RolloutPending returns up to n children of the wave under way whose commands are
// not stored yet, in order.
func (r *Record) RolloutPending(n int) []uint32 {
	o := r.Rollout
	if o.State != RolloutRunning && o.State != RolloutHeld {
		return nil
	}
	var out []uint32
	for i := range o.Members.All() {
		if o.Released.Has(i) || r.Children.Get(i).Terminal() {
			continue
		}
		if out = append(out, i); len(out) == n {
			break
		}
	}
	return out
}

// StartWave begins the next wave of a rollout whose pause is over. It returns false
// when no wave is due.
func StartWave(r Record, now time.Time) (Record, bool) {
	o := r.Rollout
	if o == nil || r.State.Terminal() || !r.Admitted || r.Cancel != nil || o.State != RolloutPausing || o.NextWaveAt.After(now) {
		return r, false
	}
	members, waves := r.nextWave()
	next := *o
	next.Reason, next.RequestedBy, next.NextWaveAt = "", "", time.Time{}
	if len(members) == 0 {
		next.State = RolloutReleased
	} else {
		next.State, next.Members = RolloutRunning, ChildSet(nil).With(members...)
		next.Wave, next.Waves = o.Wave+1, o.Wave+waves
	}
	return r.withRollout(next, now), true
}

// nextWave returns the children of the next wave, and how many waves are needed for
// all that are left. With a spread it takes those first of whose places most are
// left, so that no more waves are needed than the fullest place makes necessary.
func (r *Record) nextWave() (members []uint32, waves uint32) {
	size := r.Rollout.Plan.size(r.Total)
	byPlace := make(map[uint32][]uint32)
	var order []uint32 // places, by their first child
	var left uint32
	for i := range r.RolloutUnstarted() {
		left++
		if r.Rollout.Plan.Spread == SpreadNone {
			if uint32(len(members)) < size {
				members = append(members, i)
			}
			continue
		}
		place := r.Rollout.place(i)
		if byPlace[place] == nil {
			order = append(order, place)
		}
		byPlace[place] = append(byPlace[place], i)
	}
	waves = (left + size - 1) / size
	slices.SortStableFunc(order, func(a, b uint32) int { return len(byPlace[b]) - len(byPlace[a]) })
	for _, place := range order {
		waves = max(waves, uint32(len(byPlace[place])))
		if uint32(len(members)) < size {
			members = append(members, byPlace[place][0])
		}
	}
	slices.Sort(members)
	return members, waves
}

func (o *Rollout) place(i uint32) uint32 {
	if int(i) > len(o.Places) {
		return 0
	}
	return o.Places[i-1]
}

// Release notes that the commands of children are stored with this record.
func Release(r Record, children []uint32, now time.Time) Record {
	next := *r.Rollout
	next.Released = next.Released.With(children...)
	r = r.withRollout(next, now)
	settled := r.settledRollout(now)
	return r.withRollout(*settled, now)
}

// HoldRollout holds a rollout before its next wave. One that is held already stays as
// it is, and false is returned.
func HoldRollout(r Record, reason, by string, now time.Time) (Record, bool, error) {
	o, err := r.steerable()
	if err != nil {
		return r, false, err
	}
	if o.State == RolloutHeld {
		return r, false, nil
	}
	next := *o
	next.State, next.Reason, next.RequestedBy, next.NextWaveAt = RolloutHeld, reason, by, time.Time{}
	return r.withRollout(next, now), true, nil
}

// ResumeRollout lets a rollout that is held or pausing go on at once: with its next
// wave, or with the one that is under way.
func ResumeRollout(r Record, now time.Time) (Record, error) {
	o, err := r.steerable()
	if err != nil {
		return r, err
	}
	if o.State == RolloutRunning {
		return r, fmt.Errorf("%w: wave %d is under way", ErrRolloutUnderWay, o.Wave)
	}
	next := *o
	next.Reason, next.RequestedBy, next.NextWaveAt = "", "", time.Time{}
	next.State = RolloutRunning
	if r.waveOver() {
		next.State = RolloutPausing // until now
	}
	return r.withRollout(next, now), nil
}

// CheckWave refuses a rollout of which not as many waves have begun as the caller saw,
// so that what is asked about one wave is never done to another.
func CheckWave(r Record, seen uint32) error {
	o := r.Rollout
	if o == nil || o.Wave == seen {
		return nil
	}
	return fmt.Errorf("%w: it is at wave %d of %d (%s), not %d", ErrRolloutMoved, o.Wave, o.Waves, o.State, seen)
}

// AbortRollout stops a rollout for good. One that is stopped stays as it is, and false
// is returned.
func AbortRollout(r Record, reason, by string, now time.Time) (Record, bool, error) {
	if r.Rollout != nil && r.Rollout.State == RolloutStopped {
		return r, false, nil
	}
	if _, err := r.steerable(); err != nil {
		return r, false, err
	}
	text := textRolloutAborted
	if reason != "" {
		text += ": " + reason
	}
	return r.stopRollout(RolloutStopAborted, text, by, now), true, nil
}

// ExpireRollout stops a rollout whose deadline has passed; false says that no child is
// left to be started.
func ExpireRollout(r Record, now time.Time) (Record, bool) {
	if _, err := r.steerable(); err != nil {
		return r, false
	}
	return r.stopRollout(RolloutStopDeadline, textRolloutExpired, "", now), true
}

// steerable returns the rollout when further children may be started.
func (r *Record) steerable() (*Rollout, error) {
	switch o := r.Rollout; {
	case o == nil:
		return nil, ErrNoRollout
	case r.State.Terminal():
		return nil, fmt.Errorf("%w: the job has ended (%s)", ErrRolloutOver, r.State)
	case o.State == RolloutStopped:
		return nil, fmt.Errorf("%w: %s", ErrRolloutOver, o.Reason)
	case o.State == RolloutReleased:
		return nil, fmt.Errorf("%w: no node is left to be started; cancel the job to stop those that run", ErrRolloutOver)
	default:
		return o, nil
	}
}

func (r Record) stopRollout(why RolloutStop, reason, by string, now time.Time) Record {
	next := *r.Rollout
	next.State, next.Stop, next.Reason, next.RequestedBy, next.NextWaveAt = RolloutStopped, why, reason, by, time.Time{}
	return r.withRollout(next, now)
}

// withRollout returns the record with another rollout, and its text.
func (r Record) withRollout(o Rollout, now time.Time) Record {
	r.Rollout = &o
	r.UpdatedAt = later(r.UpdatedAt, now)
	if !r.State.Terminal() {
		_, text, _ := Aggregate(r.Counts, r.Total, r.Admitted, r.Cancel.mode(), r.Type.Wording())
		r.Description = r.rolloutText(text)
	}
	return r
}

// stoppedByCancel returns the rollout of a batch that was asked to stop: its children
// are asked too, and those that were not started end with that.
func (r *Record) stoppedByCancel() *Rollout {
	o := r.Rollout
	if o == nil || o.State == RolloutStopped || o.State == RolloutReleased {
		return o
	}
	next := *o
	next.State, next.Stop, next.Reason, next.NextWaveAt = RolloutStopped, RolloutStopCancelled, textRolloutCancelled, time.Time{}
	next.RequestedBy = r.Cancel.RequestedBy
	return &next
}

// settledRollout brings the rollout in line with the children of a parent.
func (r *Record) settledRollout(at time.Time) *Rollout {
	o := r.Rollout
	if o == nil || !r.Admitted || o.State == RolloutStopped || o.State == RolloutReleased {
		return o
	}
	next := *o
	switch {
	case !r.unstarted():
		next.State, next.Reason, next.RequestedBy, next.NextWaveAt = RolloutReleased, "", "", time.Time{}
	case o.Plan.exceeded(r.Counts.failures(), r.givenStart()):
		next.State, next.Stop, next.RequestedBy, next.NextWaveAt = RolloutStopped, RolloutStopFailures, "", time.Time{}
		next.Reason = failuresText(r.Counts.failures())
	case o.State == RolloutRunning && r.waveOver() && o.Plan.Confirm:
		next.State, next.Reason, next.RequestedBy = RolloutHeld, textRolloutConfirm, ""
	case o.State == RolloutRunning && r.waveOver():
		next.State = RolloutPausing
		if o.Plan.Pause > 0 {
			next.NextWaveAt = stamp(at.Add(o.Plan.Pause))
		}
	default:
		return o
	}
	return &next
}

// failures is how many children count against the limit of a rollout.
func (c Counts) failures() uint32 { return c.Failed + c.TimedOut + c.Terminated }

// givenStart is how many children have been started, the whole wave under way
// included, but for those that were cancelled or superseded.
func (r *Record) givenStart() uint32 {
	n := r.Counts.Completed + r.Counts.failures()
	for i := range r.Rollout.Released.All() {
		if !r.Children.Get(i).Terminal() {
			n++
		}
	}
	return n + uint32(len(r.RolloutPending(MaxChildren)))
}

// waveOver reports whether every child of the last wave has ended.
func (r *Record) waveOver() bool {
	for i := range r.Rollout.Members.All() {
		if !r.Children.Get(i).Terminal() {
			return false
		}
	}
	return true
}
