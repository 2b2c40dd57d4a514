// SPDX-License-Identifier: Apache-2.0

package ssh_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	cryptossh "golang.org/x/crypto/ssh"

	"github.com/rackbus/rackbus/pkg/secret"
	"github.com/rackbus/rackbus/pkg/ssh"
	"github.com/rackbus/rackbus/pkg/ssh/sshtest"
)

func TestExec(t *testing.T) {
	t.Parallel()
	s := sshtest.StartOpenSSH(t, sshtest.Options{})
	c := dialOpenSSH(t, s, s.Port())
	run := func(cmd ssh.Command) (ssh.Output, error) { return c.Exec(t.Context(), cmd) }

	t.Run("both outputs", func(t *testing.T) {
		out, err := run(ssh.Command{Line: "echo out; echo err >&2"})
		require.NoError(t, err)
		require.Equal(t, "out\n", string(out.Stdout))
		require.Equal(t, "err\n", string(out.Stderr))
	})
	t.Run("input", func(t *testing.T) {
		out, err := run(ssh.Command{Line: "cat", Stdin: strings.NewReader("given")})
		require.NoError(t, err)
		require.Equal(t, "given", string(out.Stdout))
	})
	t.Run("input that nobody reads", func(t *testing.T) {
		for range 5 {
			_, err := run(ssh.Command{Line: "true", Stdin: bytes.NewReader(make([]byte, 4<<20))})
			require.NoError(t, err)
		}
	})
	t.Run("exit status", func(t *testing.T) {
		out, err := run(ssh.Command{Line: "echo first; echo the  reason >&2; exit 7", Label: "try"})
		var exit *ssh.ExitError
		require.ErrorAs(t, err, &exit)
		require.Equal(t, 7, exit.Status)
		require.Equal(t, `command "try": exit status 7: the reason`, err.Error())
		require.Equal(t, "first\n", string(out.Stdout))
	})
	t.Run("signal", func(t *testing.T) {
		_, err := run(ssh.Command{Line: "kill -TERM $$"})
		var exit *ssh.ExitError
		require.ErrorAs(t, err, &exit)
		require.Equal(t, "TERM", exit.Signal)
		require.Equal(t, -1, exit.Status)
	})
	t.Run("bounded output", func(t *testing.T) {
		out, err := run(ssh.Command{Line: "yes | head -c 3000000", MaxOutput: 1000})
		require.NoError(t, err)
		require.Len(t, out.Stdout, 1000)
		require.True(t, out.Truncated)
	})
	t.Run("limit", func(t *testing.T) {
		var err error
		soon(t, func() {
			_, err = run(ssh.Command{Line: "sleep 30", Limit: time.Second})
		})
		require.True(t, ssh.IsKind(err, ssh.KindTimeout), "%v", err)
		require.True(t, errorsAs(err).OutcomeUnknown())
		_, err = run(ssh.Command{Line: "true"})
		require.NoError(t, err)
	})
	t.Run("limit beside another command", func(t *testing.T) {
		c := dialOpenSSH(t, s, s.Port())
		other := make(chan error, 1)
		begun, end := newPath(t), newPath(t)
		go func() {
			_, err := c.Exec(t.Context(), ssh.Command{Line: "touch " + begun + "; until [ -e " + end + " ]; do sleep 0.05; done"})
			other <- err
		}()
		require.Eventually(t, func() bool { _, err := os.Stat(begun); return err == nil }, patience, time.Millisecond)
		var err error
		soon(t, func() {
			_, err = c.Exec(t.Context(), ssh.Command{Line: "sleep 30", Limit: time.Second})
		})
		require.True(t, ssh.IsKind(err, ssh.KindTimeout), "%v", err)
		require.Empty(t, other, "it is not waited for")
		require.NoError(t, os.WriteFile(end, nil, 0o600))
		require.NoError(t, <-other, "it is not disturbed")
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		mine := errors.New("mine")
		time.AfterFunc(100*time.Millisecond, func() { cancel(mine) })
		_, err := c.Exec(ctx, ssh.Command{Line: "sleep 30"})
		require.ErrorIs(t, err, mine)
	})
	t.Run("in parallel on one connection", func(t *testing.T) {
		c := dialOpenSSH(t, s, s.Port())
		before := strings.Count(s.Log(), "Accepted publickey")
		var wg sync.WaitGroup
		var failed atomic.Int32
		for i := range 10 {
			wg.Go(func() {
				out, err := c.Exec(t.Context(), ssh.Command{Line: fmt.Sprintf("echo %d", i)})
				if err != nil || string(out.Stdout) != fmt.Sprintf("%d\n", i) {
					failed.Add(1)
				}
			})
		}
		wg.Wait()
		require.Zero(t, failed.Load())
		require.Equal(t, 1, strings.Count(s.Log(), "Accepted publickey")-before)
	})
	t.Run("quoted argument", func(t *testing.T) {
		nasty := "a'b \"c\" $(touch /tmp/never) `d`;\n&"
		out, err := run(ssh.Command{Line: "printf %s " + ssh.Quote(nasty)})
		require.NoError(t, err)
		require.Equal(t, nasty, string(out.Stdout))
	})
}

func TestExecWithoutExitStatus(t *testing.T) {
	t.Parallel()
	d := startDevice(t, func(d *device) { d.exec = func(cryptossh.Channel, string) {} })
	_, err := dial(t, d.port(), rightPassword).Exec(t.Context(), ssh.Command{Line: "true"})
	require.True(t, ssh.IsKind(err, ssh.KindProtocol), "%v", err)
	require.True(t, errorsAs(err).OutcomeUnknown())
}

func TestConnectionLostInACommandIsNotRepeated(t *testing.T) {
	t.Parallel()
	var ran atomic.Int32
	d := startDevice(t, func(d *device) {
		d.exec = func(cryptossh.Channel, string) {
			ran.Add(1)
			d.kill()
		}
	})
	_, err := dial(t, d.port(), rightPassword).Exec(t.Context(), ssh.Command{Line: "flash"})
	require.True(t, ssh.IsKind(err, ssh.KindClosed), "%v", err)
	require.True(t, errorsAs(err).OutcomeUnknown())
	require.EqualValues(t, 1, ran.Load())
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	l.Close()
	err = dial(t, port, rightPassword).Connect(t.Context())
	require.True(t, ssh.IsKind(err, ssh.KindUnreachable), "%v", err)
	require.True(t, errorsAs(err).Transient())

	t.Run("no answer to the connect", func(t *testing.T) {
		c := dial(t, port, rightPassword, func(o *ssh.Options) {
			o.Timing.Connect = 100 * time.Millisecond
			o.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
				<-ctx.Done()
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: ctx.Err()}
			}
		})
		err := c.Connect(t.Context())
		require.True(t, ssh.IsKind(err, ssh.KindTimeout), "%v", err)
	})
	t.Run("closed at once", func(t *testing.T) {
		d := startDevice(t)
		c := dial(t, d.port(), rightPassword, func(o *ssh.Options) {
			o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				c, err := (&net.Dialer{}).DialContext(ctx, network, address)
				if err == nil {
					c.Close()
				}
				return c, err
			}
		})
		require.True(t, ssh.IsKind(c.Connect(t.Context()), ssh.KindUnreachable))
	})
}

// hold is a guard that a test ends.
type hold struct {
	lost   atomic.Bool
	checks atomic.Int32
	mu     sync.Mutex
	cuts   []context.CancelCauseFunc
}

var errHoldLost = errors.New("session lost")

func (h *hold) Check() error {
	h.checks.Add(1)
	if h.lost.Load() {
		return errHoldLost
	}
	return nil
}

func (h *hold) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cut := context.WithCancelCause(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cuts = append(h.cuts, cut)
	return ctx, func() { cut(nil) }
}

func (h *hold) end() {
	h.lost.Store(true)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, cut := range h.cuts {
		cut(errHoldLost)
	}
}

func TestGuard(t *testing.T) {
	t.Parallel()
	s := sshtest.StartOpenSSH(t, sshtest.Options{})
	open := func(t *testing.T) (*ssh.Client, *hold, *sshtest.Proxy) {
		h, p := &hold{}, sshtest.StartProxy(t, s.Addr())
		return dialOpenSSH(t, s, p.Port(), func(o *ssh.Options) { o.Guard = h }), h, p
	}
	t.Run("nothing is sent without the hold", func(t *testing.T) {
		c, h, p := open(t)
		h.lost.Store(true)
		_, err := c.Exec(t.Context(), ssh.Command{Line: "true"})
		require.ErrorIs(t, err, ssh.ErrNotHeld)
		require.Zero(t, p.Accepted())
	})
	t.Run("no command either", func(t *testing.T) {
		c, h, _ := open(t)
		require.NoError(t, c.Connect(t.Context()))
		h.lost.Store(true)
		path := newPath(t)
		_, err := c.Exec(t.Context(), ssh.Command{Line: "touch " + ssh.Quote(path)})
		require.ErrorIs(t, err, ssh.ErrNotHeld)
		require.ErrorIs(t, c.Remove(t.Context(), path), ssh.ErrNotHeld)
		require.NoFileExists(t, path)
	})
	t.Run("its end cuts a command", func(t *testing.T) {
		c, h, _ := open(t)
		require.NoError(t, c.Connect(t.Context()))
		begun := newPath(t)
		var ended sync.WaitGroup
		ended.Go(func() {
			for tick := time.NewTicker(5 * time.Millisecond); t.Context().Err() == nil; <-tick.C {
				if _, err := os.Stat(begun); err == nil {
					break
				}
			}
			h.end()
		})
		var err error
		soon(t, func() { _, err = c.Exec(t.Context(), ssh.Command{Line: "touch " + ssh.Quote(begun) + "; sleep 30"}) })
		ended.Wait()
		require.ErrorIs(t, err, ssh.ErrNotHeld)
		require.ErrorIs(t, err, errHoldLost)
		require.True(t, errorsAs(err).OutcomeUnknown())
	})
	t.Run("and an upload", func(t *testing.T) {
		c, h, _ := open(t)
		src, _ := tempFile(t, 8<<20)
		end := sync.OnceFunc(h.end)
		path := newPath(t)
		_, err := c.Upload(t.Context(), ssh.Upload{Source: src, Path: path, Progress: func(sent, total int64) {
			if sent > total/2 {
				end()
			}
		}})
		require.ErrorIs(t, err, ssh.ErrNotHeld)
		require.NoFileExists(t, path)
	})
	t.Run("every chunk is checked", func(t *testing.T) {
		c, h, _ := open(t)
		src, _ := tempFile(t, 1<<20)
		_, err := c.Upload(t.Context(), ssh.Upload{Source: src, Path: newPath(t)})
		require.NoError(t, err)
		require.GreaterOrEqual(t, h.checks.Load(), int32(32))
	})
}

func TestInteract(t *testing.T) {
	t.Parallel()
	t.Run("real shell", func(t *testing.T) {
		s := sshtest.StartOpenSSH(t, sshtest.Options{})
		c := dialOpenSSH(t, s, s.Port())
		var got bytes.Buffer
		err := c.Interact(t.Context(), ssh.Terminal{Limit: patience}, func(rw io.ReadWriter) error {
			if _, err := io.WriteString(rw, "tty && echo d''one; exit\n"); err != nil {
				return err
			}
			_, err := io.Copy(&got, rw)
			return err
		})
		require.NoError(t, err)
		require.Contains(t, got.String(), "/dev/pts/")
		require.Contains(t, got.String(), "done")
	})
	t.Run("expired password", func(t *testing.T) {
		d := startDevice(t, func(d *device) {
			d.exec = func(ch cryptossh.Channel, _ string) {
				in := bufio.NewReader(ch)
				io.WriteString(ch, "Your password has expired.\r\nNew password: ")
				first, _ := in.ReadString('\r')
				io.WriteString(ch, "\r\nRetype new password: ")
				second, _ := in.ReadString('\r')
				if first == second {
					io.WriteString(ch, "\r\npassword updated successfully\r\n")
				}
				exit(ch, 0)
			}
		})
		c := dial(t, d.port(), rightPassword)
		var transcript strings.Builder
		err := c.Interact(t.Context(), ssh.Terminal{}, func(rw io.ReadWriter) error {
			buf := make([]byte, 512)
			answered := 0
			for {
				n, err := rw.Read(buf)
				transcript.Write(buf[:n])
				if strings.Count(strings.ToLower(transcript.String()), "new password: ") > answered {
					answered++
					if _, err := io.WriteString(rw, "n3w\r"); err != nil {
						return err
					}
				}
				if err != nil {
					return nil
				}
			}
		})
		require.NoError(t, err)
		require.Contains(t, transcript.String(), "updated successfully")
	})
	t.Run("limit", func(t *testing.T) {
		d := startDevice(t, func(d *device) {
			d.exec = func(ch cryptossh.Channel, _ string) { io.Copy(io.Discard, ch) }
		})
		c := dial(t, d.port(), rightPassword)
		err := c.Interact(t.Context(), ssh.Terminal{Limit: 100 * time.Millisecond}, func(rw io.ReadWriter) error {
			_, err := io.Copy(io.Discard, rw)
			return err
		})
		require.True(t, ssh.IsKind(err, ssh.KindTimeout), "%v", err)
	})
}

func TestClosedClient(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	d := startDevice(t, func(d *device) {
		d.exec = func(cryptossh.Channel, string) { <-release }
	})
	defer close(release)
	c := dial(t, d.port(), rightPassword)
	require.NoError(t, c.Connect(t.Context()))
	time.AfterFunc(50*time.Millisecond, c.Close)
	_, err := c.Exec(t.Context(), ssh.Command{Line: "wait"})
	require.Error(t, err)
	_, err = c.Exec(t.Context(), ssh.Command{Line: "wait"})
	require.ErrorIs(t, err, ssh.ErrClosed)
}

func TestOptions(t *testing.T) {
	t.Parallel()
	good := ssh.Options{HostKeys: ssh.AnyHostKey{}, Guard: ssh.Unguarded{}}
	login := ssh.Login{User: "u", Password: secret.New("p")}
	at := ssh.Endpoint{Address: "127.0.0.1"}
	for name, f := range map[string]func() error{
		"no address":   func() error { _, err := ssh.New(ssh.Endpoint{}, login, good); return err },
		"no user":      func() error { _, err := ssh.New(at, ssh.Login{Password: login.Password}, good); return err },
		"no password":  func() error { _, err := ssh.New(at, ssh.Login{User: "u"}, good); return err },
		"no guard":     func() error { _, err := ssh.New(at, login, ssh.Options{HostKeys: good.HostKeys}); return err },
		"no host keys": func() error { _, err := ssh.New(at, login, ssh.Options{Guard: good.Guard}); return err },
		"bad key": func() error {
			_, err := ssh.New(at, ssh.Login{User: "u", PrivateKey: secret.New("not a k3y")}, good)
			require.NotContains(t, err.Error(), "k3y")
			return err
		},
		"off with a file":   func() error { _, err := ssh.OpenHostKeys(ssh.PolicyOff, "x", nil); return err },
		"tofu without file": func() error { _, err := ssh.OpenHostKeys(ssh.PolicyTrustOnFirstUse, "", nil); return err },
		"unknown policy":    func() error { _, err := ssh.OpenHostKeys("maybe", "x", nil); return err },
	} {
		require.ErrorIs(t, f(), ssh.ErrInvalidOptions, name)
	}
	c, err := ssh.New(at, login, good)
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:22", c.Addr())
	c.Close()
}
