// SPDX-License-Identifier: Apache-2.0

package job

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func benchmarkEvent() (Record, Event) {
	r := inState(KindLeaf, StateRunning)
	e := started(worker(EventProgress))
	for _, name := range []string{"prepare", "upload", "poll", "activate", "verify"} {
		e.Stages = append(e.Stages, Stage{Name: name, Status: StageRunning, StartedAt: at(1)})
	}
	return r, e
}

func BenchmarkFoldProgress(b *testing.B) {
	r, e := benchmarkEvent()
	b.ReportAllocs()
	for b.Loop() {
		if _, c, err := Fold(r, e); err != nil || !c.Applied() {
			b.Fatal(c, err)
		}
	}
}

func BenchmarkApplyChildOf10000(b *testing.B) {
	p := NewParent(parentSpec(), 10000, true)
	c := child(5000, StateRunning, "")
	b.ReportAllocs()
	for b.Loop() {
		if _, c := ApplyChild(p, c, at(1)); !c.Applied() {
			b.Fatal(c)
		}
	}
}

func BenchmarkEventCodec(b *testing.B) {
	_, e := benchmarkEvent()
	b.ReportAllocs()
	for b.Loop() {
		data, err := MarshalEvent(e)
		require.NoError(b, err)
		_, err = UnmarshalEvent(data)
		require.NoError(b, err)
	}
}

func BenchmarkRecordCodec(b *testing.B) {
	r, e := benchmarkEvent()
	r.Stages = e.Stages
	b.ReportAllocs()
	for b.Loop() {
		data, err := MarshalRecord(r)
		require.NoError(b, err)
		_, err = UnmarshalRecord(data)
		require.NoError(b, err)
	}
}
