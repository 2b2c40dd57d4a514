// SPDX-License-Identifier: Apache-2.0

package job

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func genDiagnostics(t *rapid.T) *Diagnostics {
	if !rapid.Bool().Draw(t, "diagnostics set") {
		return nil
	}
	text := func(label string) string { return rapid.String().Draw(t, label) }
	n := &Diagnostics{FailureSignature: text("signature"), Summary: text("summary"), Advice: text("advice")}
	for range rapid.IntRange(0, 3).Draw(t, "collectors") {
		n.Collectors = append(n.Collectors, CollectorOutcome{
			Name: text("collector"), Required: rapid.Bool().Draw(t, "required"),
			Status:  CollectorStatus(rapid.IntRange(0, int(collectorStatusCount)-1).Draw(t, "collector status")),
			Message: text("collector message"), Duration: time.Duration(rapid.Int64Range(0, 1<<45).Draw(t, "took")),
		})
	}
	if rapid.Bool().Draw(t, "evidence set") {
		n.Evidence = &EvidenceBundle{
			Filename: text("filename"), ContentType: text("content type"), SizeBytes: rapid.Int64().Draw(t, "size"),
			SHA256:    rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "digest"),
			WrittenAt: genInstant(t, "written"),
		}
	}
	return n
}

// testDiagnostics has every field set.
func testDiagnostics() *Diagnostics {
	return &Diagnostics{
		FailureSignature: "X", Summary: "x", Advice: "x",
		Collectors: []CollectorOutcome{{"x", true, CollectorFailed, "x", 1500 * time.Millisecond}},
		Evidence:   &EvidenceBundle{"x", "x", 1, []byte{1}, t0},
	}
}

// TestFinishTakesFindings shows that only the end of a job gives it findings, and
// that an outcome without any leaves them null.
func TestFinishTakesFindings(t *testing.T) {
	for name, want := range map[string]*Diagnostics{"classified": testDiagnostics(), "not classified": nil} {
		t.Run(name, func(t *testing.T) {
			spec := leafSpec()
			spec.About = testID(9)
			r := NewLeaf(spec)
			require.Equal(t, testID(9), r.About)
			r, _, err := Fold(r, Event{
				Kind: EventFinished, ID: r.ID, Epoch: 1, N: 1, State: StateFailed, At: t0, Diagnostics: want,
				Failure: NewFailure(FailureDiagnosticsStateChanged, "it restarted"),
			})
			require.NoError(t, err)
			require.Equal(t, want, r.Diagnostics)
			require.Equal(t, testID(9), r.About)
		})
	}
}
