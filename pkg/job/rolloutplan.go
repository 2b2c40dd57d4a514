// SPDX-License-Identifier: Apache-2.0

package job

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// RolloutSpread limits how many nodes of one place are in a wave. The numbers are
// those of rackbus.v1.RolloutSpread.
type RolloutSpread uint8

const (
	// SpreadNone leaves the size of a wave the only limit.
	SpreadNone RolloutSpread = iota
	// SpreadRack takes at most one node of a rack into a wave.
	SpreadRack
	// SpreadDomain takes at most one node of a switch domain into a wave.
	SpreadDomain

	spreadCount
)

// MaxRolloutPause bounds the pause between two waves.
const MaxRolloutPause = 7 * 24 * time.Hour

// RolloutPlan is how the children of a batch start: in waves.
type RolloutPlan struct {
	// WaveSize is the nodes of a wave; or WavePercent the share of all nodes. One
	// of them is set.
	WaveSize    uint32
	WavePercent uint32
	Spread      RolloutSpread
	// MaxFailures and MaxFailurePercent are how much may fail without stopping the
	// rollout: children, and percent of those started so far. Without either,
	// nothing may.
	MaxFailures       *uint32
	MaxFailurePercent *uint32
	// Pause is the time between the end of a wave and the next.
	Pause time.Duration
	// Confirm lets every wave but the first wait until somebody asks for it.
	Confirm bool
}

// ErrInvalidRollout is wrapped by every refusal of a plan; the text says what is
// wrong with it.
var ErrInvalidRollout = errors.New("invalid rollout plan")

// ParseRolloutPlan reads a plan as request metadata spells it: settings separated by
// semicolons, for example "wave=10; per=rack; max-failures=2; pause=10m" or
// "wave=10%; confirm". Errors wrap ErrInvalidRollout.
func ParseRolloutPlan(text string) (RolloutPlan, error) {
	var p RolloutPlan
	seen := make(map[string]bool)
	for setting := range strings.SplitSeq(text, ";") {
		setting = strings.TrimSpace(setting)
		if setting == "" {
			continue
		}
		key, value, _ := strings.Cut(setting, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if seen[key] {
			return p, fmt.Errorf("%w: %s is given twice", ErrInvalidRollout, key)
		}
		seen[key] = true
		if err := p.set(key, value, strings.Contains(setting, "=")); err != nil {
			return p, fmt.Errorf("%w: %w", ErrInvalidRollout, err)
		}
	}
	if !seen[settingWave] {
		return p, fmt.Errorf("%w: wave is missing, for example wave=10 or wave=10%%", ErrInvalidRollout)
	}
	return p, nil
}

// The settings of a plan.
const (
	settingWave        = "wave"
	settingPer         = "per"
	settingMaxFailures = "max-failures"
	settingPause       = "pause"
	settingConfirm     = "confirm"
)

func (p *RolloutPlan) set(key, value string, valued bool) error {
	switch key {
	case settingWave:
		return p.setWave(value)
	case settingPer:
		switch value {
		case "rack":
			p.Spread = SpreadRack
		case "domain":
			p.Spread = SpreadDomain
		default:
			return fmt.Errorf("per=%q is neither rack nor domain", value)
		}
	case settingMaxFailures:
		n, percent, err := amount(value)
		switch {
		case err != nil:
			return fmt.Errorf("max-failures=%q: %w", value, err)
		case percent && n >= 100:
			return fmt.Errorf("max-failures=%q: less than 100%% is needed for a limit", value)
		case percent:
			p.MaxFailurePercent = &n
		default:
			p.MaxFailures = &n
		}
	case settingPause:
		d, err := time.ParseDuration(value)
		if err != nil || d < 0 || d > MaxRolloutPause {
			return fmt.Errorf("pause=%q is no duration from 0 to 168h, such as 10m", value)
		}
		p.Pause = d
	case settingConfirm:
		if valued {
			return fmt.Errorf("confirm takes no value")
		}
		p.Confirm = true
	default:
		return fmt.Errorf("%q is not known; there are wave, per, max-failures, pause and confirm", key)
	}
	return nil
}

func (p *RolloutPlan) setWave(value string) error {
	n, percent, err := amount(value)
	switch {
	case err != nil:
		return fmt.Errorf("wave=%q: %w", value, err)
	case n == 0:
		return fmt.Errorf("wave=%q: a wave has at least one node", value)
	case percent && n > 100:
		return fmt.Errorf("wave=%q: more than 100%% of the nodes", value)
	case percent:
		p.WavePercent = n
	case n > MaxChildren:
		return fmt.Errorf("wave=%q: at most %d nodes", value, MaxChildren)
	default:
		p.WaveSize = n
	}
	return nil
}

// amount reads "10" or "10%".
func amount(text string) (n uint32, percent bool, err error) {
	digits, percent := strings.CutSuffix(text, "%")
	v, err := strconv.ParseUint(digits, 10, 31)
	if err != nil {
		return 0, percent, errors.New("a whole number is needed, or one followed by %")
	}
	return uint32(v), percent, nil
}

// String returns the plan in the form that ParseRolloutPlan reads.
func (p RolloutPlan) String() string {
	parts := []string{fmt.Sprintf("wave=%d", p.WaveSize)}
	if p.WavePercent > 0 {
		parts[0] = fmt.Sprintf("wave=%d%%", p.WavePercent)
	}
	switch p.Spread {
	case SpreadRack:
		parts = append(parts, "per=rack")
	case SpreadDomain:
		parts = append(parts, "per=domain")
	default:
	}
	if p.MaxFailures != nil {
		parts = append(parts, fmt.Sprintf("max-failures=%d", *p.MaxFailures))
	}
	if p.MaxFailurePercent != nil {
		parts = append(parts, fmt.Sprintf("max-failures=%d%%", *p.MaxFailurePercent))
	}
	if p.Pause > 0 {
		parts = append(parts, "pause="+p.Pause.String())
	}
	if p.Confirm {
		parts = append(parts, settingConfirm)
	}
	return strings.Join(parts, "; ")
}

// size is how many of total children a wave has at most.
func (p *RolloutPlan) size(total uint32) uint32 {
	if p.WavePercent > 0 {
		return max(uint32((uint64(total)*uint64(p.WavePercent)+99)/100), 1)
	}
	return max(p.WaveSize, 1)
}

// exceeded reports whether failures among started children are more than the plan
// allows.
func (p *RolloutPlan) exceeded(failures, started uint32) bool {
	if failures == 0 {
		return false
	}
	if p.MaxFailures == nil && p.MaxFailurePercent == nil {
		return true
	}
	if p.MaxFailures != nil && failures > *p.MaxFailures {
		return true
	}
	return p.MaxFailurePercent != nil && uint64(failures)*100 > uint64(*p.MaxFailurePercent)*uint64(started)
}
