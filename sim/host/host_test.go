// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"errors"
	"io"
	"net"
	"os"
	"path"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pkg/sftp"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/crypto/ssh"

	"github.com/rackbus/rackbus/sim/host"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

// machine is a tray whose power a test sets.
type machine struct {
	off           atomic.Bool
	boots, cycles atomic.Int64
}

func (m *machine) PowerState() string {
	if m.off.Load() {
		return "Off"
	}
	return "On"
}
func (m *machine) Boots() int     { return int(m.boots.Load()) }
func (m *machine) AUXCycles() int { return int(m.cycles.Load()) }

type client struct {
	t *testing.T
	s *host.Server
	c *ssh.Client
}

func start(t *testing.T, o host.Options) *host.Server {
	t.Helper()
	s, err := host.Start(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func dial(s *host.Server, password string) (*ssh.Client, error) {
	return ssh.Dial("tcp", net.JoinHostPort(s.Address(), strconv.Itoa(s.Port())), &ssh.ClientConfig{
		User: s.Username(), Auth: []ssh.AuthMethod{ssh.Password(password)}, Timeout: patience,
		HostKeyCallback: ssh.InsecureIgnoreHostKey(),
	})
}

func connect(t *testing.T, s *host.Server) *client {
	t.Helper()
	c, err := dial(s, s.Password())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return &client{t, s, c}
}

// run returns the output and the exit status of a command.
func (c *client) run(line string) (string, int) {
	c.t.Helper()
	s, err := c.c.NewSession()
	require.NoError(c.t, err)
	defer s.Close()
	if strings.HasPrefix(line, "sudo -S ") {
		s.Stdin = strings.NewReader(c.s.Password() + "\n")
	}
	out, err := s.Output(line)
	var exit *ssh.ExitError
	if errors.As(err, &exit) {
		return string(out), exit.ExitStatus()
	}
	require.NoError(c.t, err)
	return string(out), 0
}

func (c *client) ok(line string) string {
	c.t.Helper()
	out, status := c.run(line)
	require.Zero(c.t, status, "%s: %s", line, out)
	return out
}

func (c *client) upload(name string, content []byte) error {
	c.t.Helper()
	f, err := sftp.NewClient(c.c)
	require.NoError(c.t, err)
	defer f.Close()
	out, err := f.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	_, err = out.Write(content)
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	return err
}

func TestFlash(t *testing.T) {
	m := &machine{}
	s := start(t, host.Options{Machine: m})
	c := connect(t, s)
	device := s.Paths()[0]
	query := "sudo -S flint -d '" + device + "' --yes query 2>/dev/null"

	_, status := c.run(query)
	require.Equal(t, 1, status, "the driver is not loaded")
	require.Contains(t, c.ok("sudo -S mst status -v 2>/dev/null"), "NA ")
	c.ok("command -v mst && command -v flint")
	c.ok("sudo -S mst start 2>/dev/null")
	table := c.ok("sudo -S mst status -v 2>/dev/null")
	require.Contains(t, table, device)
	require.Contains(t, table, s.Paths()[2]+".1", "a second function")
	require.Contains(t, c.ok(query), "28.39.1002")

	dir := strings.TrimSpace(c.ok("mktemp -d /tmp/nvfwupd-flint.XXXXXX"))
	image := path.Join(dir, "cx7.bin")
	require.NoError(t, c.upload(image, host.BuildImage("MT_0000001069", "28.40.1", 100<<10)))
	c.ok("test -f '" + image + "'")
	require.Contains(t, c.ok("sudo -S flint -i '"+image+"' query 2>/dev/null"), "28.40.1")
	burn := "sudo -S flint -d '" + device + "' --yes -i '" + image + "' b 2>/dev/null"
	c.ok(burn)
	require.Contains(t, c.ok(query), "28.40.1", "what is written shows")
	require.Equal(t, "28.39.1002", s.Version(device), "but is not in force")
	s.SetFaults(host.Faults{ShowRunning: true})
	require.Contains(t, c.ok(query), "FW Version(Running):   28.39.1002")
	out, status := c.run(strings.ReplaceAll(burn, device, s.Paths()[2]))
	require.Equal(t, 1, status)
	require.Contains(t, out, "PSID mismatch")
	_, status = c.run("pgrep -f 'flint .* b$'")
	require.Equal(t, 1, status)
	c.ok("rm -rf -- '" + dir + "'")
	require.Empty(t, s.Files())

	m.boots.Add(1)
	m.cycles.Add(1)
	require.Equal(t, "28.40.1", s.Version(device))
	require.Equal(t, 1, s.Flashes(device))
	require.Error(t, c.c.Wait(), "connections end with the restart")
	require.Len(t, s.Log("' b 2>/dev/null"), 2)
	for _, e := range s.Log("") {
		require.NotContains(t, e.Command, s.Password())
	}
}

func TestPower(t *testing.T) {
	m := &machine{}
	s := start(t, host.Options{Machine: m, Boot: 2 * time.Second, Poll: time.Millisecond})
	c := connect(t, s)
	_, status := c.run("state=$(systemctl is-system-running)")
	require.Equal(t, 1, status, "it starts")
	require.Eventually(t, func() bool { _, status := c.run("systemctl is-system-running"); return status == 0 }, patience, 5*time.Millisecond)
	m.off.Store(true)
	require.Error(t, c.c.Wait())
	_, err := dial(s, s.Password())
	require.Error(t, err)
	m.off.Store(false)
	out, status := connect(t, s).run("systemctl is-system-running")
	require.Equal(t, 1, status)
	require.Equal(t, "system-state:starting\n", out)
}

func TestFaults(t *testing.T) {
	s := start(t, host.Options{})
	t.Run("logins", func(t *testing.T) {
		_, err := dial(s, "wr0ng")
		require.Error(t, err)
		require.Equal(t, []string{"refused"}, s.Logins())
	})
	t.Run("commands", func(t *testing.T) {
		c := connect(t, s)
		s.SetFaults(host.Faults{Commands: []host.CommandFault{
			{Match: "pgrep", Remaining: 2, Exit: 7, Output: "twice"}, {Match: "mktemp", Exit: 3},
		}})
		for range 2 {
			out, status := c.run("pgrep -f 'flint .* b$'")
			require.Equal(t, 7, status)
			require.Equal(t, "twice", out)
		}
		_, status := c.run("pgrep -f 'flint .* b$'")
		require.Equal(t, 1, status)
		for range 3 {
			_, status = c.run("mktemp -d /tmp/x.XXXXXX")
			require.Equal(t, 3, status)
		}
		_, status = c.run("reboot")
		require.Equal(t, 127, status)
		s.SetFaults(host.Faults{SudoPassword: "other"})
		_, status = c.run("sudo -S mst start 2>/dev/null")
		require.Equal(t, 1, status)
		s.SetFaults(host.Faults{NoTools: true})
		_, status = c.run("command -v mst && command -v flint")
		require.Equal(t, 1, status)
	})
	t.Run("cut", func(t *testing.T) {
		c := connect(t, s)
		s.SetFaults(host.Faults{Commands: []host.CommandFault{{Match: "pgrep", Remaining: 1, Cut: true}}})
		session, err := c.c.NewSession()
		require.NoError(t, err)
		require.Error(t, session.Run("pgrep -f 'flint .* b$'"))
		require.Error(t, c.c.Wait())
	})
	t.Run("upload is cut", func(t *testing.T) {
		c := connect(t, s)
		s.SetFaults(host.Faults{CutUploadAfter: 64 << 10})
		require.Error(t, c.upload("/tmp/x", make([]byte, 1<<20)))
	})
	t.Run("outside of its directory", func(t *testing.T) {
		s.SetFaults(host.Faults{})
		c := connect(t, s)
		require.Error(t, c.upload("/tmp/../../../etc/x", []byte("x")))
		f, err := sftp.NewClient(c.c)
		require.NoError(t, err)
		defer f.Close()
		in, err := f.Open("/../../etc/passwd")
		if err == nil {
			_, err = io.ReadAll(in)
			in.Close()
		}
		require.Error(t, err)
	})
	t.Run("options", func(t *testing.T) {
		for _, devices := range [][]host.Device{{{Type: "ConnectX7"}}, {
			{Type: "ConnectX7", PSID: "P", Version: "1", Path: "/dev/mst/a"}, {Type: "ConnectX7", PSID: "P", Version: "1", Path: "/dev/mst/a"},
		}} {
			_, err := host.Start(host.Options{Devices: devices})
			require.ErrorIs(t, err, host.ErrInvalidOption)
		}
	})
}
