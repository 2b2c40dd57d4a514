// SPDX-License-Identifier: Apache-2.0

package ssh_test

import (
	"bufio"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	cryptossh "golang.org/x/crypto/ssh"

	"github.com/rackbus/rackbus/pkg/secret"
	"github.com/rackbus/rackbus/pkg/ssh"
)

const newPassword = "N3w-pl4nted"

// asking is a host that asks for a new password. Each text is said, then a line is
// read; after the last text the session ends, or stays open.
func asking(open bool, got *atomic.Pointer[[]string], texts ...string) func(*device) {
	return func(d *device) {
		d.exec = func(ch cryptossh.Channel, _ string) {
			in := bufio.NewReader(ch)
			var lines []string
			for i, text := range texts {
				_, _ = io.WriteString(ch, text)
				if i == len(texts)-1 {
					break
				}
				line, err := in.ReadString('\r')
				if err != nil {
					return
				}
				lines = append(lines, strings.TrimSuffix(line, "\r"))
				got.Store(&lines)
			}
			if open {
				_, _ = io.Copy(io.Discard, in)
				return
			}
			exit(ch, 0)
		}
	}
}

func TestChangeExpiredPassword(t *testing.T) {
	t.Parallel()
	const first, again = "Your password has expired.\r\nNew Password: ", "\r\nRetype new password: "
	for name, c := range map[string]struct {
		texts []string
		open  bool
		err   string
	}{
		"updated":            {texts: []string{first, again, "\r\npasswd: password updated successfully\r\n"}, open: true},
		"passwd updated":     {texts: []string{first, "Re-enter new password:", "passwd updated successfully"}, open: true},
		"changed":            {texts: []string{first, "Retype password:", "Password changed."}, open: true},
		"ends without words": {texts: []string{first, again, ""}},
		"bad password":       {texts: []string{first, "\r\nBAD PASSWORD: it is too simple\r\nNew password: "}, open: true, err: "it is too simple"},
		"token error":        {texts: []string{first, again, "passwd: Authentication token manipulation error"}, err: "manipulation"},
		"unchanged":          {texts: []string{first, again, "Password unchanged"}, err: "unchanged"},
		"failure":            {texts: []string{first, again, "Failure setting password"}, err: "failure"},
		"early end":          {texts: []string{first, ""}, err: "before the password was given twice"},
		"echo":               {texts: []string{first, again, newPassword + ": password unchanged"}, err: "XXXX: password unchanged"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got atomic.Pointer[[]string]
			d := startDevice(t, asking(c.open, &got, c.texts...))
			client := dial(t, d.port(), rightPassword)
			err := client.ChangeExpiredPassword(t.Context(), secret.New(newPassword), patience)
			for _, line := range *got.Load() {
				require.Equal(t, newPassword, line)
			}
			if c.err == "" {
				require.NoError(t, err)
				require.Len(t, *got.Load(), 2)
				return
			}
			require.ErrorIs(t, err, ssh.ErrPasswordRefused)
			require.Contains(t, strings.ToLower(err.Error()), strings.ToLower(c.err))
			require.NotContains(t, err.Error(), newPassword)
			require.True(t, errorsAs(err).Sent)
		})
	}
}

func TestChangeExpiredPasswordEnds(t *testing.T) {
	t.Parallel()
	var got atomic.Pointer[[]string]
	d := startDevice(t, asking(true, &got, "Welcome to NVOS\r\nadmin@switch:~$ "))
	client := dial(t, d.port(), rightPassword)
	err := client.ChangeExpiredPassword(t.Context(), secret.New(newPassword), 100*time.Millisecond)
	require.True(t, ssh.IsKind(err, ssh.KindTimeout), "%v", err)
	require.Nil(t, got.Load(), "nothing is typed into a shell that does not ask")
	require.ErrorIs(t, client.ChangeExpiredPassword(t.Context(), secret.New("a\nb"), 0), ssh.ErrInvalidOptions)
	require.ErrorIs(t, client.ChangeExpiredPassword(t.Context(), secret.Value{}, 0), ssh.ErrInvalidOptions)
}
