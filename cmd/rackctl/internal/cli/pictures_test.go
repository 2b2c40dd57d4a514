// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/cmd/rackctl/internal/cli"
)

// The pictures of docs/rackctl.md are what the commands really show; with -update
// they are drawn anew.
func TestPictures(t *testing.T) {
	t.Parallel()
	dir := filepath.Join("..", "..", "..", "..", "docs", "images")
	for name, shot := range map[string]struct {
		line  string
		shows []string
	}{
		"rackctl-racks":   {"racks", []string{"GB200"}},
		"rackctl-job-get": {"job get " + alone().GetJobId(), []string{"BMC_TASK_FAILED", "Stages"}},
		"rackctl-compare": {"firmware compare --object ACME72_9.1.0 -f rack.csv", []string{"mismatched"}},
		"rackctl-watch":   {"job watch " + batchID, []string{"████", "tray-04", "running"}},
	} {
		s := &screen{}
		if name == "rackctl-watch" {
			s = watchHalfway(t)
		} else {
			l := furnished(t)
			line := strings.Replace(shot.line, "rack.csv", l.rackFile(), 1)
			l.runIn(func(env *cli.Env) { onScreen(env, s) }, strings.Fields(line)...)
		}
		for _, text := range shot.shows {
			require.Contains(t, s.text(), text, name)
		}
		path, got := filepath.Join(dir, name+".svg"), s.svg("rackctl "+shot.line)
		if *update {
			require.NoError(t, os.MkdirAll(dir, 0o755))
			require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
		}
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, string(want), got, "%s: go test ./internal/cli -run TestPictures -update draws it anew", path)
	}
}

// onScreen makes both outputs of a command a terminal.
func onScreen(env *cli.Env, s *screen) {
	env.Stdout, env.Stderr = s, s
	env.Redraw, env.Tables, env.Colours = true, true, true
	env.Size = func() (int, int) { return 110, 30 }
}

// watchHalfway is the screen of somebody who watches the batch.
func watchHalfway(t *testing.T) *screen {
	l := newLab(t)
	l.says("GetJob", halfway())
	l.watches(func(_ *watchRequest, stream watchStream) error {
		<-stream.Context().Done()
		return nil
	})
	s, signals := &screen{}, make(chan os.Signal, 1)
	seen := &watched{}
	seen.see = func(text string) {
		_, _ = s.Write([]byte(text))
		if strings.Contains(s.text(), "tray-04") {
			seen.see = nil // the picture is complete
			signals <- os.Interrupt
		}
	}
	l.runIn(func(env *cli.Env) {
		onScreen(env, s)
		env.Stderr = seen
		env.Signals = func() (<-chan os.Signal, func()) { return signals, func() {} }
	}, "job", "watch", batchID)
	return s
}
