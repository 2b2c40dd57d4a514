// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The browser and what drives it.
const (
	chromium = "/usr/bin/chromium"
	driver   = "node_modules/playwright-core/package.json"
)

// needBrowser skips the test where there is no browser, unless this is continuous
// integration, which installs it.
func needBrowser(t *testing.T) {
	t.Helper()
	missing := func(what, how string) {
		if os.Getenv("CI") != "" {
			t.Fatalf("%s is missing in continuous integration; .ci/run has to install it: %s", what, how)
		}
		t.Skipf("%s is missing, so the console is not tested in a browser: %s", what, how)
	}
	// What was looked at here makes go test run again when it has changed.
	for _, file := range []string{"console.mjs", "package-lock.json"} {
		_, err := os.Stat(file)
		require.NoError(t, err)
	}
	if _, err := os.Stat(chromium); err != nil {
		missing(chromium, "apt-get install chromium")
	}
	if _, err := exec.LookPath("node"); err != nil {
		missing("node", "apt-get install nodejs, version 20 or later")
	}
	if _, err := os.Stat(driver); err != nil {
		missing("playwright-core", "npm ci in test/console")
	}
}

// browser is the running script.
type browser struct {
	t   *testing.T
	in  io.WriteCloser
	out *bufio.Scanner
}

// browserLimit ends a script that hangs; every wait of its own is shorter.
const browserLimit = 5 * time.Minute

// openBrowser starts the script with its settings.
func openBrowser(t *testing.T, settings map[string]any, authority string) *browser {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), browserLimit)
	cmd := exec.CommandContext(ctx, "node", "console.mjs")
	cmd.Env = append(os.Environ(), "NODE_EXTRA_CA_CERTS="+authority)
	cmd.WaitDelay = 5 * time.Second
	log, err := os.Create(filepath.Join(t.ArtifactDir(), "browser.log"))
	require.NoError(t, err)
	cmd.Stderr = log
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	b := &browser{t: t, in: in, out: bufio.NewScanner(out)}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // a second time after close
		if t.Failed() {
			text, err := os.ReadFile(log.Name())
			t.Logf("--- the browser's log (%v)\n%s", err, text)
		}
		log.Close()
	})
	b.tell(settings)
	return b
}

// tell sends the script a line.
func (b *browser) tell(v any) {
	b.t.Helper()
	text, err := json.Marshal(v)
	require.NoError(b.t, err)
	_, err = b.in.Write(append(text, '\n'))
	require.NoError(b.t, err, "the script has ended")
}

// await reads what the script has seen, which must be the named step.
func (b *browser) await(step string) map[string]any {
	b.t.Helper()
	if !b.out.Scan() {
		b.t.Fatalf("the script ended before the step %q (%v)", step, b.out.Err())
	}
	var got map[string]any
	require.NoError(b.t, json.Unmarshal(b.out.Bytes(), &got), b.out.Text())
	require.Equal(b.t, step, got["step"], "%v", got)
	return got
}
