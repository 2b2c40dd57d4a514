// SPDX-License-Identifier: Apache-2.0

package job

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestParseRolloutPlan(t *testing.T) {
	two, five := uint32(2), uint32(5)
	for text, want := range map[string]RolloutPlan{
		"wave=10": {WaveSize: 10},
		"wave=10; per=rack; max-failures=2; pause=10m":  {WaveSize: 10, Spread: SpreadRack, MaxFailures: &two, Pause: 10 * time.Minute},
		" wave = 10% ;confirm; ":                        {WavePercent: 10, Confirm: true},
		"pause=1h30m;wave=1;max-failures=5%;per=domain": {WaveSize: 1, MaxFailurePercent: &five, Pause: 90 * time.Minute, Spread: SpreadDomain},
		"wave=100%": {WavePercent: 100},
	} {
		got, err := ParseRolloutPlan(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for text, want := range map[string]string{
		"":                          "wave is missing",
		"confirm":                   "wave is missing",
		"wave":                      `wave="": a whole number is needed`,
		"wave=0":                    "at least one node",
		"wave=101%":                 "more than 100%",
		"wave=-1":                   "a whole number is needed",
		"wave=1.5":                  "a whole number is needed",
		"wave=2000000":              "at most 1048576 nodes",
		"wave=1; wave=2":            "wave is given twice",
		"wave=1; per=row":           `per="row" is neither rack nor domain`,
		"wave=1; max-failures=x":    `max-failures="x": a whole number`,
		"wave=1; max-failures=100%": "less than 100%",
		"wave=1; pause=10":          `pause="10" is no duration`,
		"wave=1; pause=-1m":         "is no duration",
		"wave=1; pause=200h":        "from 0 to 168h",
		"wave=1; confirm=yes":       "confirm takes no value",
		"wave=1; waves=2":           `"waves" is not known; there are wave, per, max-failures, pause and confirm`,
		"wave=1, per=rack":          `wave="1, per=rack"`,
	} {
		_, err := ParseRolloutPlan(text)
		require.ErrorIs(t, err, ErrInvalidRollout, text)
		require.ErrorContains(t, err, want, text)
	}
}

func TestRolloutPlanReadsWhatItWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := RolloutPlan{WaveSize: rapid.Uint32Range(1, MaxChildren).Draw(t, "size"), Confirm: rapid.Bool().Draw(t, "confirm")}
		if rapid.Bool().Draw(t, "in percent") {
			o.WaveSize, o.WavePercent = 0, rapid.Uint32Range(1, 100).Draw(t, "percent")
		}
		o.Spread = RolloutSpread(rapid.IntRange(0, int(spreadCount)-1).Draw(t, "spread"))
		n := rapid.Uint32Range(0, 99).Draw(t, "limit")
		switch rapid.IntRange(0, 2).Draw(t, "kind") {
		case 1:
			o.MaxFailures = &n
		case 2:
			o.MaxFailurePercent = &n
		}
		o.Pause = time.Duration(rapid.Int64Range(0, int64(MaxRolloutPause)).Draw(t, "pause"))
		got, err := ParseRolloutPlan(o.String())
		require.NoError(t, err, o.String())
		require.Equal(t, o, got)
	})
}
