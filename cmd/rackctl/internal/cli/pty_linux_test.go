// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rackbus/rackbus/cmd/rackctl/internal/cli"
)

// terminal opens a pair of pseudo-terminals of a size.
func terminal(t *testing.T, columns, lines uint16) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = master.Close() })
	fd := int(master.Fd())
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: lines}))
	return master, slave
}

// On a real terminal the bars are drawn to its width, and Ctrl-C leaves the job
// running.
func TestRealTerminal(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.says("GetJob", halfway())
	l.watches(func(_ *watchRequest, stream watchStream) error {
		<-stream.Context().Done()
		return nil
	})
	master, slave := terminal(t, 72, 20)
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), exe, "job", "watch", batchID)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	cmd.Env = append(os.Environ(), envAsProgram+"=1", "TERM=xterm", "NO_COLOR=")
	for name, value := range l.environment() {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	require.NoError(t, cmd.Start())
	require.NoError(t, slave.Close())
	s, typed := &screen{}, false
	buf := make([]byte, 100) // reads end anywhere, as on slow lines
	for {
		n, err := master.Read(buf)
		if _, werr := s.Write(buf[:n]); werr != nil || err != nil {
			break // the program has ended
		}
		if !typed && strings.Contains(s.text(), "tray-04") {
			typed = true
			_, err := master.WriteString("\x03")
			require.NoError(t, err)
		}
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	require.True(t, errors.As(err, &exit), "%v", err)
	require.Equal(t, cli.ExitInterrupted, exit.ExitCode(), s.text())
	require.Contains(t, s.raw.String(), "\x1b[36mrunning")
	require.Contains(t, s.text(), "rackctl job cancel "+batchID)
	for _, line := range strings.Split(s.text(), "\n")[:6] {
		require.Less(t, len([]rune(line)), 72, line)
	}
}

// TestInterruptedPrompt: Ctrl-C in place of a password leaves a terminal that shows again what is typed.
func TestInterruptedPrompt(t *testing.T) {
	t.Parallel()
	l := furnished(t)
	master, slave := terminal(t, 80, 24)
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), exe, "validate", "--rack", "lab")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	cmd.Env = append(os.Environ(), envAsProgram+"=1", "TERM=xterm")
	for name, value := range l.environment() {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	require.NoError(t, cmd.Start())
	said, buf := "", make([]byte, 100)
	for !strings.Contains(said, "Password of root at management controllers: ") {
		n, err := master.Read(buf)
		require.NoError(t, err)
		said += string(buf[:n])
	}
	require.Eventually(t, func() bool { return !echoes(t, slave) }, patience, time.Millisecond, "the password is not shown")
	_, err = master.WriteString("\x03")
	require.NoError(t, err)
	var exit *exec.ExitError
	require.ErrorAs(t, cmd.Wait(), &exit)
	require.Equal(t, cli.ExitInterrupted, exit.ExitCode())
	require.True(t, echoes(t, slave))
	require.Empty(t, l.callsOf("StartSystemValidation"))
}

// echoes says that a terminal shows what is typed.
func echoes(t *testing.T, terminal *os.File) bool {
	t.Helper()
	state, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
	require.NoError(t, err)
	return state.Lflag&unix.ECHO != 0
}
