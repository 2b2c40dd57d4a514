// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// TestClipCountsColumns: a line that is wider than the terminal is two there, and the
// picture of the progress could not be replaced any more.
func TestClipCountsColumns(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text  string
		width int
		want  string
	}{
		{"plain", 5, "plain"},
		{"plain", 4, "pla…"},
		{"電源故障", 8, "電源故障"},
		{"電源故障", 7, "電源故…"},
		{"電源故障", 6, "電源…"},
		{"e\u0301te\u0301", 3, "e\u0301te\u0301"},
		{"x", 0, ""},
		{strings.Repeat("長", 1000), 2, "…"},
	} {
		got := clip(tt.text, tt.width)
		require.Equal(t, tt.want, got)
		require.LessOrEqual(t, columnsOf(got), max(tt.width, 0))
	}
}

// TestBarsFitEveryWidth: a wider line would be two on the terminal, and spoil the picture.
func TestBarsFitEveryWidth(t *testing.T) {
	t.Parallel()
	for width := 20; width <= 140; width++ {
		env := &Env{Redraw: true, Stderr: io.Discard, Size: func() (int, int) { return width, 24 }}
		v := newLive(env)
		parent := &rackbusv1.Job{JobId: "p", Type: "firmware_update", Name: strings.Repeat("name ", 30), StateDescription: strings.Repeat("word ", 40)}
		v.take(parent, true)
		for _, node := range []string{"a", "compute-0001", strings.Repeat("long", 20)} {
			v.take(&rackbusv1.Job{
				JobId: node, RackId: "rack-1", NodeId: node, State: rackbusv1.JobState_JOB_STATE_PARTIALLY_FAILED, Percent: 50,
				StateDescription: strings.Repeat("word ", 40),
			}, false)
		}
		for _, line := range v.paint() {
			require.Less(t, columnsOf(line), width, line)
		}
	}
}

// TestNarrowTable: names are cut where there is no room for what follows, ids never.
func TestNarrowTable(t *testing.T) {
	t.Parallel()
	const id, name = "72f5b1f8-2fe2-44b9-af0d-891b00000000", "firmware_update.lab.tray-01.72f5b1f8"
	tab := &table{columns: columns("JOB", "~NAME", "STATE", "WHAT")}
	tab.add(id, name, "running", "Uploading target 1/1")
	for _, tt := range []struct {
		limit int
		want  string
	}{
		{0, id + "  " + name + "  running  Uploading target 1/1\n"},
		{120, id + "  " + name + "  running  Uploading target 1/1\n"},
		{90, id + "  firmware_update.lab.tray…  running  Uploading targe…\n"},
		{70, id + "  firmwar…  running  Uploading ta…\n"},
		{50, id + "  firmwar…  running\n"},
	} {
		var out strings.Builder
		tab.render(&out, false, false, tt.limit)
		_, row, _ := strings.Cut(out.String(), "\n")
		require.Equal(t, tt.want, row, tt.limit)
	}
}
