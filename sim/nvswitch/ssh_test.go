// SPDX-License-Identifier: Apache-2.0

package nvswitch_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/pkg/sftp"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/rackbus/rackbus/sim/internal/jsonduration"
	"github.com/rackbus/rackbus/sim/nvswitch"
	"github.com/rackbus/rackbus/sim/reqlog"
)

const reports = "/host/cluster_infra/app_state/nmx-controller/nv-bridge-state-report"

func TestCommands(t *testing.T) {
	s := start(t, nvswitch.Options{})
	_, err := tryDial(s, "admin", "wrong")
	require.Error(t, err)
	c := dial(t, s, "admin", "racksim-pw")
	must(t, c, "mkdir -p '/tmp/x y'")
	put(t, c, "/tmp/x y/it's", []byte("content"))
	require.Equal(t, "ok\n", must(t, c, `test -f '/tmp/x y/it'\''s' && echo ok`))
	require.Equal(t, "content", must(t, c, `cat '/tmp/x y/it'\''s'`))
	sum := sha256.Sum256([]byte("content"))
	require.True(t, strings.HasPrefix(must(t, c, `sha256sum '/tmp/x y/it'\''s'`), hex.EncodeToString(sum[:])))
	sum = sha256.Sum256([]byte("cont"))
	require.Equal(t, hex.EncodeToString(sum[:])+"  -\n", must(t, c, `test -f '/tmp/x y/it'\''s' && head -c 4 -- '/tmp/x y/it'\''s' | sha256sum`))
	must(t, c, `rm -f '/tmp/x y/it'\''s'`)
	out, _, err := run(t, c, `test -f '/tmp/x y/it'\''s' && echo ok`)
	require.Error(t, err)
	require.Empty(t, out)
	must(t, c, "install -d -m 751 '/home/admin/certs'")
	mode, err := s.FileMode("/home/admin/certs")
	require.NoError(t, err)
	require.EqualValues(t, 0o751, mode)
	require.Empty(t, must(t, c, "if [ -d "+reports+" ]; then ls -t "+reports+"; fi"))
	_, _, err = run(t, c, "reboot")
	var exit *ssh.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 127, exit.ExitStatus())
	_, complaint, err := run(t, c, "cat /no/such/file")
	require.Error(t, err)
	require.Contains(t, complaint, "No such file")

	writes := s.Requests(reqlog.Filter{Protocol: reqlog.SSH, Writes: true})
	require.Len(t, writes, 3)
	require.Equal(t, "mkdir -p '/tmp/x y'", writes[0].Path)
	logins := s.Requests(reqlog.Filter{Protocol: reqlog.SSH, Method: "LOGIN"})
	require.Equal(t, 401, logins[0].Status)
	require.Equal(t, 200, logins[len(logins)-1].Status)
}

func TestReport(t *testing.T) {
	s := start(t, nvswitch.Options{Model: nvswitch.VRNVL72})
	s.SetConfig("/cluster/node/primary/server", obj{"192.0.2.1": obj{}, "192.0.2.2": obj{}})
	c := dial(t, s, "admin", "racksim-pw")
	const generate = "nv action generate sdn state apps nmx-controller type nv-bridge-state-report"
	read := func() (name string, peers []any) {
		name, _, _ = strings.Cut(must(t, c, "ls -t "+reports), "\n")
		var doc obj
		require.NoError(t, json.Unmarshal([]byte(must(t, c, "cat "+reports+"/"+name)), &doc))
		return name, doc["statusUpdates"].([]any)[0].(obj)["connectionStatuses"].([]any)
	}
	must(t, c, generate)
	first, peers := read()
	require.Len(t, peers, 2)
	require.Equal(t, "NMX_NVB_KA_STATE_OK", peers[0].(obj)["kaState"])
	must(t, c, generate)
	second, _ := read()
	require.NotEqual(t, first, second)
	s.SetKnobs(nvswitch.Knobs{SDNReport: nvswitch.SDNReportStale})
	must(t, c, generate)
	third, _ := read()
	require.Equal(t, second, third)
	s.SetKnobs(nvswitch.Knobs{SDNReport: nvswitch.SDNReportNoPeer, SDNPeerStates: map[string]any{"kaState": "X"}})
	must(t, c, generate)
	_, peers = read()
	require.Len(t, peers, 1)
	require.Equal(t, "X", peers[0].(obj)["kaState"])
}

func TestCommandRules(t *testing.T) {
	s := start(t, nvswitch.Options{Knobs: nvswitch.Knobs{Commands: []nvswitch.CommandRule{
		{Match: "test -f", Answer: true, Exit: 3, Stderr: "boom", Remaining: 1},
		{Match: "mkdir", Execute: true, NoExitStatus: true},
		{Match: "cat", Delay: jsonduration.Duration(20 * time.Millisecond)},
		{Match: "chmod", Cut: true},
		{Match: "ls", Hang: true},
	}}})
	c := dial(t, s, "admin", "racksim-pw")
	_, complaint, err := run(t, c, "test -f /x")
	var exit *ssh.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 3, exit.ExitStatus())
	require.Equal(t, "boom", complaint)
	_, _, err = run(t, c, "mkdir -p /a/b")
	require.ErrorAs(t, err, new(*ssh.ExitMissingError))
	must(t, c, "test -d /a/b")
	started := time.Now()
	must(t, c, "cat")
	require.GreaterOrEqual(t, time.Since(started), 20*time.Millisecond)

	session, err := c.NewSession()
	require.NoError(t, err)
	require.NoError(t, session.Start("ls /"))
	_, err = s.Log().WaitInFlight(t.Context(), reqlog.Filter{Path: "ls /"})
	require.NoError(t, err)
	require.NoError(t, session.Close())
	_, err = s.Log().Wait(t.Context(), reqlog.Filter{Path: "ls /"}, 1)
	require.NoError(t, err)
	_, _, err = run(t, c, "chmod 644 /a")
	require.Error(t, err)
	require.Error(t, c.Wait())
}

// change types two passwords into the terminal of an expired user and returns all it said.
func change(t *testing.T, s *nvswitch.Switch, first, second, prompt string) string {
	t.Helper()
	c := dial(t, s, "admin", "admin")
	_, _, err := run(t, c, "echo hello")
	require.Error(t, err)
	session, err := c.NewSession()
	require.NoError(t, err)
	defer session.Close()
	require.NoError(t, session.RequestPty("xterm", 24, 80, ssh.TerminalModes{}))
	in, err := session.StdinPipe()
	require.NoError(t, err)
	out, err := session.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, session.Shell())
	var said strings.Builder
	answers := []struct{ prompt, text string }{{"new password:", first}, {prompt, second}}
	buffer := make([]byte, 256)
	from := 0
	for {
		n, err := out.Read(buffer)
		said.Write(buffer[:n])
		rest := strings.ToLower(said.String()[from:])
		if len(answers) > 0 && strings.Contains(rest, answers[0].prompt) {
			from = said.Len()
			_, err := io.WriteString(in, answers[0].text+"\r")
			require.NoError(t, err)
			answers = answers[1:]
		}
		if err != nil {
			return said.String()
		}
	}
}

func TestPasswordChange(t *testing.T) {
	tests := map[string]struct {
		kind          nvswitch.PasswordChange
		first, second string
		retype, says  string
		changed       bool
	}{
		"usual":         {nvswitch.PasswordUpdated, "newpw", "newpw", "", "passwd updated successfully", true},
		"other text":    {nvswitch.PasswordUpdatedAlso, "newpw", "newpw", "", "password updated successfully", true},
		"third text":    {nvswitch.PasswordChanged, "newpw", "newpw", "", "Password changed", true},
		"silent":        {nvswitch.PasswordSilent, "newpw", "newpw", "", "", true},
		"other prompt":  {nvswitch.PasswordUpdated, "newpw", "newpw", "Re-enter new password: ", "successfully", true},
		"token":         {nvswitch.PasswordTokenError, "newpw", "newpw", "", "Authentication token manipulation error", false},
		"bad":           {nvswitch.PasswordBad, "newpw", "newpw", "", "BAD PASSWORD", false},
		"unchanged":     {nvswitch.PasswordUnchanged, "newpw", "newpw", "", "Password unchanged", false},
		"setting":       {nvswitch.PasswordSetting, "newpw", "newpw", "", "Failure setting password", false},
		"early":         {nvswitch.PasswordEarlyClose, "newpw", "newpw", "", "", false},
		"two passwords": {nvswitch.PasswordUpdated, "newpw", "newpx", "", "manipulation error", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := start(t, nvswitch.Options{Knobs: nvswitch.Knobs{PasswordChange: tt.kind, RetypePrompt: tt.retype}})
			s.SetUser("admin", "admin", true)
			prompt := "retype new password:"
			if tt.retype != "" {
				prompt = strings.ToLower(strings.TrimSpace(tt.retype))
			}
			require.Contains(t, change(t, s, tt.first, tt.second, prompt), tt.says)
			require.Equal(t, !tt.changed, s.Expired("admin"))
			if tt.changed {
				require.Equal(t, "newpw", s.UserPassword("admin"))
				must(t, dial(t, s, "admin", "newpw"), "echo hello")
			}
			shells := s.Requests(reqlog.Filter{Protocol: reqlog.SSH, Method: "SHELL"})
			require.Len(t, shells, 1)
		})
	}
}

func TestTransfer(t *testing.T) {
	s := start(t, nvswitch.Options{})
	shell := dial(t, s, "admin", "racksim-pw")
	raw := bytes.Repeat([]byte("0123456789abcdef"), 4096)
	const target = "/host/nos-images/a.bin"
	put(t, shell, target, raw)
	stored, err := s.ReadFile(target)
	require.NoError(t, err)
	require.Equal(t, raw, stored)
	sum := sha256.Sum256(raw)
	uploads := s.Requests(reqlog.Filter{Uploads: true})
	require.Len(t, uploads, 1)
	require.Equal(t, hex.EncodeToString(sum[:]), uploads[0].SHA256)
	require.EqualValues(t, len(raw), uploads[0].Bytes)

	files, err := sftp.NewClient(shell)
	require.NoError(t, err)
	defer files.Close()
	info, err := files.Stat(target)
	require.NoError(t, err)
	require.EqualValues(t, len(raw), info.Size())
	require.NoError(t, files.PosixRename(target, "/host/nos-images/b.bin"))
	require.Equal(t, []string{"/host/nos-images/b.bin"}, s.Files("/host/nos-images"))
	require.Error(t, files.Rename("/host/nos-images/b.bin", "/host/nos-images/b.bin"))
	s.SetKnobs(nvswitch.Knobs{SFTP: nvswitch.SFTPKnobs{NoRename: true}})
	require.Error(t, files.PosixRename("/host/nos-images/b.bin", target))
	s.SetKnobs(nvswitch.Knobs{})
	require.NoError(t, files.Mkdir("/tmp/d"))
	require.NoError(t, files.RemoveDirectory("/tmp/d"))
	require.NoError(t, s.WriteFile("/tmp/short", []byte("1234567")))
	require.NoError(t, files.Truncate("/tmp/short", 3))
	require.NoError(t, files.Chmod("/tmp/short", 0o600))
	listed, err := files.ReadDir("/tmp")
	require.NoError(t, err)
	require.Len(t, listed, 1)
	require.EqualValues(t, 3, listed[0].Size())
	require.EqualValues(t, 0o600, listed[0].Mode().Perm())
	require.NoError(t, files.Remove("/tmp/short"))
	require.Len(t, s.Requests(reqlog.Filter{Protocol: reqlog.SFTP, Method: "REMOVE"}), 2)
	f, err := files.Open("/host/nos-images/b.bin")
	require.NoError(t, err)
	back, err := io.ReadAll(f)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.Equal(t, raw, back)
}

func TestTransferKnobs(t *testing.T) {
	raw := bytes.Repeat([]byte("x"), 200_000)
	const target = "/tmp/a.bin"
	upload := func(t *testing.T, k nvswitch.SFTPKnobs) (*nvswitch.Switch, *ssh.Client, error) {
		s := start(t, nvswitch.Options{Knobs: nvswitch.Knobs{SFTP: k}})
		shell := dial(t, s, "admin", "racksim-pw")
		files, err := sftp.NewClient(shell)
		if err != nil {
			return s, shell, err
		}
		defer files.Close()
		f, err := files.Create(target)
		if err != nil {
			return s, shell, err
		}
		_, err = f.Write(raw)
		return s, shell, errors.Join(err, f.Close())
	}
	_, _, err := upload(t, nvswitch.SFTPKnobs{FailAfter: 100_000})
	require.ErrorContains(t, err, "no space")
	s, _, err := upload(t, nvswitch.SFTPKnobs{CutAfter: 100_000, Cuts: 1})
	require.Error(t, err)
	require.Zero(t, s.Knobs().SFTP.CutAfter)
	s, _, err = upload(t, nvswitch.SFTPKnobs{TruncateAfter: 1000})
	require.NoError(t, err)
	stored, err := s.ReadFile(target)
	require.NoError(t, err)
	require.Len(t, stored, 1000)
	s, _, err = upload(t, nvswitch.SFTPKnobs{Corrupt: true})
	require.NoError(t, err)
	stored, err = s.ReadFile(target)
	require.NoError(t, err)
	require.Len(t, stored, len(raw))
	require.NotEqual(t, raw, stored)
	_, _, err = upload(t, nvswitch.SFTPKnobs{Denied: []string{"/tmp/*"}})
	require.ErrorContains(t, err, "permission")
	_, shell, err := upload(t, nvswitch.SFTPKnobs{RefuseSubsystem: 1})
	require.Error(t, err)
	put(t, shell, target, raw)
	_, shell, err = upload(t, nvswitch.SFTPKnobs{NoStat: true})
	require.NoError(t, err)
	files, err := sftp.NewClient(shell)
	require.NoError(t, err)
	defer files.Close()
	_, err = files.Stat(target)
	require.Error(t, err)
	started := time.Now()
	_, _, err = upload(t, nvswitch.SFTPKnobs{BytesPerSecond: 2_000_000})
	require.NoError(t, err)
	require.Greater(t, time.Since(started), 80*time.Millisecond)
}

func TestStalledTransfer(t *testing.T) {
	s := start(t, nvswitch.Options{Knobs: nvswitch.Knobs{SFTP: nvswitch.SFTPKnobs{StallAfter: 1000}}})
	shell := dial(t, s, "admin", "racksim-pw")
	files, err := sftp.NewClient(shell)
	require.NoError(t, err)
	f, err := files.Create("/tmp/a")
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() {
		_, err := f.Write(make([]byte, 5000))
		done <- err
	}()
	select {
	case err := <-done:
		require.Fail(t, "the write came back", "%v", err)
	case <-time.After(50 * time.Millisecond):
	}
	require.NoError(t, shell.Close())
	require.Error(t, <-done)
	found, err := s.Log().Wait(t.Context(), reqlog.Filter{Protocol: reqlog.SFTP, Method: "PUT"}, 1)
	require.NoError(t, err)
	require.False(t, found[0].Complete)
}
