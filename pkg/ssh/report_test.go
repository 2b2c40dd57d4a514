// SPDX-License-Identifier: Apache-2.0

package ssh_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	cryptossh "golang.org/x/crypto/ssh"

	"github.com/rackbus/rackbus/pkg/ssh"
	"github.com/rackbus/rackbus/pkg/ssh/sshtest"
)

// A server with three host keys, of which one is recorded, shows that one.
func TestI1RecordedKeyTypeIsAskedFor(t *testing.T) {
	t.Parallel()
	s := sshtest.StartOpenSSH(t, sshtest.Options{HostKeys: []string{"rsa", "ecdsa", "ed25519"}})
	for _, kind := range []string{"rsa", "ecdsa", "ed25519"} {
		t.Run(kind, func(t *testing.T) {
			c := dialOpenSSH(t, s, s.Port(), withKeys(keys(t, ssh.PolicyStrict, s.KnownHosts(kind), nil)))
			require.NoError(t, c.Connect(t.Context()))
		})
	}
	t.Run("recorded type not offered", func(t *testing.T) {
		only := sshtest.StartOpenSSH(t, sshtest.Options{HostKeys: []string{"ecdsa"}})
		path := filepath.Join(t.TempDir(), "known_hosts")
		other, _, _ := strings.Cut(only.HostKey("ecdsa"), " ")
		require.Equal(t, "ecdsa-sha2-nistp256", other)
		line := "[127.0.0.1]:" + portText(only.Port()) + " " + s.HostKey("ed25519") + "\n"
		require.NoError(t, os.WriteFile(path, []byte(line), 0o600))
		c := dialOpenSSH(t, only, only.Port(), withKeys(keys(t, ssh.PolicyTrustOnFirstUse, path, nil)))
		err := c.Connect(t.Context())
		require.ErrorIs(t, err, ssh.ErrHostKeyChanged)
		require.True(t, ssh.IsKind(err, ssh.KindHostKey))
		require.ErrorContains(t, err, "ecdsa-sha2-nistp256")
	})
}

// A host shows a new key: after an installation of ours it is taken once, and both
// fingerprints are logged; without one the host is refused.
func TestI3NewKeyIsAcceptedOnceAfterOurReinstall(t *testing.T) {
	t.Parallel()
	before := sshtest.StartOpenSSH(t, sshtest.Options{})
	after := sshtest.StartOpenSSH(t, sshtest.Options{})
	path := filepath.Join(t.TempDir(), "known_hosts")
	var log bytes.Buffer
	policy := keys(t, ssh.PolicyTrustOnFirstUse, path, slog.New(slog.NewTextHandler(&log, nil)))
	// The proxy's port is the host's address; what is behind it changes.
	target := sshtest.StartProxy(t, before.Addr())
	login := func(s *sshtest.OpenSSH, change ...func(*ssh.Options)) error {
		return dialOpenSSH(t, s, target.Port(), append(change, withKeys(policy))...).Connect(t.Context())
	}
	require.NoError(t, login(before))
	require.NoError(t, login(before))

	target.To(after.Addr())
	err := login(after)
	require.ErrorIs(t, err, ssh.ErrHostKeyChanged)
	require.False(t, errorsAs(err).Transient())

	once := func(o *ssh.Options) { o.NewKeyOnce = true }
	require.NoError(t, login(after, once))
	require.Contains(t, log.String(), fingerprintOf(t, before.HostKey("ed25519")))
	require.Contains(t, log.String(), fingerprintOf(t, after.HostKey("ed25519")))
	require.NoError(t, login(after), "it is the recorded one now")
	target.To(before.Addr())
	require.ErrorIs(t, login(before), ssh.ErrHostKeyChanged, "the old one is none any more")

	t.Run("once per client", func(t *testing.T) {
		c := dialOpenSSH(t, before, target.Port(), withKeys(policy), once)
		require.NoError(t, c.Connect(t.Context()))
		target.To(after.Addr())
		target.Cut()
		// Both take the key of the other's user file: only the host key differs.
		require.Eventually(t, func() bool {
			_, err := c.Exec(t.Context(), ssh.Command{Line: "true"})
			return errors.Is(err, ssh.ErrHostKeyChanged)
		}, patience, 10*time.Millisecond)
	})
}

func TestI4SilentServers(t *testing.T) {
	t.Parallel()
	for name, greeting := range map[string]string{"never speaks": "", "stops after its version": "SSH-2.0-Stuck\r\n"} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			var wg sync.WaitGroup
			wg.Go(func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					io.WriteString(c, greeting)
					wg.Go(func() {
						defer c.Close()
						io.Copy(io.Discard, c)
					})
				}
			})
			defer wg.Wait()
			defer l.Close()
			port := uint16(l.Addr().(*net.TCPAddr).Port)
			c := dial(t, port, rightPassword, func(o *ssh.Options) { o.Timing.Handshake = 300 * time.Millisecond })
			soon(t, func() { err = c.Connect(t.Context()) })
			require.True(t, ssh.IsKind(err, ssh.KindTimeout), "%v", err)
			require.ErrorContains(t, err, "key exchange")

			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(50*time.Millisecond, cancel)
			slow := dial(t, port, rightPassword)
			soon(t, func() { err = slow.Connect(ctx) })
			require.ErrorIs(t, err, context.Canceled)
		})
	}
	t.Run("default", func(t *testing.T) {
		require.LessOrEqual(t, ssh.DefaultTiming().Handshake, 15*time.Second)
	})
	t.Run("stops in the login", func(t *testing.T) {
		release := make(chan struct{})
		d := startDevice(t, func(d *device) {
			d.config.PasswordCallback = func(cryptossh.ConnMetadata, []byte) (*cryptossh.Permissions, error) {
				<-release
				return nil, errors.New("too late")
			}
		})
		defer close(release)
		c := dial(t, d.port(), rightPassword, func(o *ssh.Options) { o.Timing.Login = 300 * time.Millisecond })
		err := c.Connect(t.Context())
		require.True(t, ssh.IsKind(err, ssh.KindTimeout), "%v", err)
		require.ErrorContains(t, err, "login")
	})
}

func TestI5PeerDies(t *testing.T) {
	t.Parallel()
	s := sshtest.StartOpenSSH(t, sshtest.Options{})
	fast := func(o *ssh.Options) {
		o.Timing.KeepAlive = 500 * time.Millisecond // silence of two seconds is death
	}
	t.Run("in a command", func(t *testing.T) {
		p := sshtest.StartProxy(t, s.Addr())
		c := dialOpenSSH(t, s, p.Port(), fast)
		require.NoError(t, c.Connect(t.Context()))
		begun := newPath(t)
		var watch sync.WaitGroup
		watch.Go(func() {
			for tick := time.NewTicker(5 * time.Millisecond); t.Context().Err() == nil; <-tick.C {
				if _, err := os.Stat(begun); err == nil {
					break
				}
			}
			p.Freeze(true)
		})
		var err error
		soon(t, func() { _, err = c.Exec(t.Context(), ssh.Command{Line: "touch " + ssh.Quote(begun) + "; sleep 30"}) })
		watch.Wait()
		require.True(t, ssh.IsKind(err, ssh.KindClosed), "%v", err)
		require.True(t, errorsAs(err).OutcomeUnknown())
	})
	t.Run("between commands", func(t *testing.T) {
		p := sshtest.StartProxy(t, s.Addr())
		c := dialOpenSSH(t, s, p.Port(), fast, func(o *ssh.Options) {
			o.Timing.Session, o.Timing.Handshake = 200*time.Millisecond, 3*time.Second
		})
		require.NoError(t, c.Connect(t.Context()))
		p.Freeze(true)
		var err error
		soon(t, func() { _, err = c.Exec(t.Context(), ssh.Command{Line: "true"}) })
		require.Error(t, err)
		require.False(t, errorsAs(err).OutcomeUnknown(), "it was never sent")
	})
	t.Run("does not open sessions", func(t *testing.T) {
		d := startDevice(t)
		d.silent.Store(true)
		c := dial(t, d.port(), rightPassword, func(o *ssh.Options) { o.Timing.Session = 200 * time.Millisecond })
		_, err := c.Exec(t.Context(), ssh.Command{Line: "true"})
		require.True(t, ssh.IsKind(err, ssh.KindTimeout), "%v", err)
		d.silent.Store(false)
		_, err = c.Exec(t.Context(), ssh.Command{Line: "true"})
		require.NoError(t, err)
	})
	t.Run("alive but quiet", func(t *testing.T) {
		c := dialOpenSSH(t, s, s.Port(), fast)
		_, err := c.Exec(t.Context(), ssh.Command{Line: "sleep 3; echo done"})
		require.NoError(t, err)
	})
	t.Run("default", func(t *testing.T) {
		d := ssh.DefaultTiming()
		require.LessOrEqual(t, time.Duration(d.Misses+2)*d.KeepAlive, time.Minute)
	})
}

func TestI7WrongPasswordIsTriedOnce(t *testing.T) {
	t.Parallel()
	interactive := func(d *device) func(cryptossh.ConnMetadata, cryptossh.KeyboardInteractiveChallenge) (*cryptossh.Permissions, error) {
		return func(_ cryptossh.ConnMetadata, ask cryptossh.KeyboardInteractiveChallenge) (*cryptossh.Permissions, error) {
			answers, err := ask("", "", []string{"Password: "}, []bool{false})
			if err != nil {
				return nil, err
			}
			return nil, d.judge("keyboard-interactive", answers[0])
		}
	}
	for _, tt := range []struct {
		name   string
		change func(*device)
		want   map[string]int
	}{
		{"password", func(*device) {}, map[string]int{"password": 1}},
		{"both offered", func(d *device) { d.config.KeyboardInteractiveCallback = interactive(d) }, map[string]int{"password": 1}},
		{"keyboard-interactive rejects cold", func(d *device) {
			d.config.KeyboardInteractiveCallback = func(cryptossh.ConnMetadata, cryptossh.KeyboardInteractiveChallenge) (*cryptossh.Permissions, error) {
				return nil, errors.New("cold")
			}
		}, map[string]int{"password": 1}},
		{"keyboard-interactive alone", func(d *device) {
			d.config.PasswordCallback = nil
			d.config.KeyboardInteractiveCallback = interactive(d)
		}, map[string]int{"keyboard-interactive": 1}},
		{"closes after one try", func(d *device) { d.config.MaxAuthTries = 1 }, map[string]int{"password": 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := startDevice(t, tt.change)
			err := dial(t, d.port(), "wr0ng").Connect(t.Context())
			require.ErrorIs(t, err, ssh.ErrCredentials)
			require.True(t, ssh.IsKind(err, ssh.KindAuth))
			require.ErrorContains(t, err, "credentials rejected")
			require.NotContains(t, err.Error(), "wr0ng")
			require.NotContains(t, err.Error(), "unexpected message")
			require.Equal(t, tt.want, d.tried())
			require.False(t, errorsAs(err).Transient())

			require.NoError(t, dial(t, d.port(), rightPassword).Connect(t.Context()))
		})
	}
	t.Run("keyboard-interactive alone, rejects cold", func(t *testing.T) {
		d := startDevice(t, func(d *device) {
			d.config.PasswordCallback = nil
			d.config.KeyboardInteractiveCallback = func(cryptossh.ConnMetadata, cryptossh.KeyboardInteractiveChallenge) (*cryptossh.Permissions, error) {
				return nil, errors.New("cold")
			}
		})
		err := dial(t, d.port(), "wr0ng").Connect(t.Context())
		require.ErrorIs(t, err, ssh.ErrCredentials)
	})
	t.Run("openssh rejects cold", func(t *testing.T) {
		s := sshtest.StartOpenSSH(t, sshtest.Options{Config: []string{"KbdInteractiveAuthentication yes"}})
		err := dial(t, s.Port(), "wr0ng").Connect(t.Context())
		require.ErrorIs(t, err, ssh.ErrCredentials)
	})
	t.Run("a second question", func(t *testing.T) {
		d := startDevice(t, func(d *device) {
			d.config.PasswordCallback = nil
			d.config.KeyboardInteractiveCallback = func(_ cryptossh.ConnMetadata, ask cryptossh.KeyboardInteractiveChallenge) (*cryptossh.Permissions, error) {
				if _, err := ask("", "", []string{"Password: "}, []bool{false}); err != nil {
					return nil, err
				}
				_, err := ask("", "", []string{"One-time code: "}, []bool{true})
				return nil, err
			}
		})
		err := dial(t, d.port(), rightPassword).Connect(t.Context())
		require.True(t, ssh.IsKind(err, ssh.KindAuth), "%v", err)
		require.ErrorContains(t, err, "more than the password")
	})
	t.Run("no method of ours", func(t *testing.T) {
		s := sshtest.StartOpenSSH(t, sshtest.Options{Config: []string{"KbdInteractiveAuthentication no"}})
		err := dial(t, s.Port(), "any").Connect(t.Context())
		require.ErrorIs(t, err, ssh.ErrNoLoginMethod)
		require.ErrorContains(t, err, "publickey")
	})
}

func TestI8UploadOverALongLine(t *testing.T) {
	t.Parallel()
	s := sshtest.StartOpenSSH(t, sshtest.Options{})
	p := sshtest.StartProxy(t, s.Addr())
	p.Delay(10 * time.Millisecond)
	c := dialOpenSSH(t, s, p.Port())
	size, least := int64(64<<20), 20.0
	if raceEnabled {
		size, least = 16<<20, 3.0 // one chunk per round trip would give 1.6
	}
	src, data := tempFile(t, int(size))
	rate := 0.0
	for round := 0; round < rounds && rate < least; round++ {
		path := newPath(t)
		var seen int64
		start := time.Now()
		done, err := c.Upload(t.Context(), ssh.Upload{Source: src, Path: path, Progress: func(sent, total int64) {
			seen = sent
			require.Equal(t, size, total)
		}})
		require.NoError(t, err)
		rate = float64(size) / time.Since(start).Seconds() / (1 << 20)
		t.Logf("%.0f MiB/s", rate)
		require.Equal(t, size, done.Sent)
		require.Equal(t, size, seen)
		require.True(t, bytes.Equal(data, readFile(t, path)))
	}
	require.Greater(t, rate, least)
}

func TestI10UploadIsCut(t *testing.T) {
	t.Parallel()
	s := sshtest.StartOpenSSH(t, sshtest.Options{})
	src, data := tempFile(t, 8<<20)
	for name, spoil := range map[string]func(*sshtest.Proxy){
		"cut":     (*sshtest.Proxy).Cut,
		"stalled": func(p *sshtest.Proxy) { p.Freeze(true) },
	} {
		t.Run(name, func(t *testing.T) {
			p := sshtest.StartProxy(t, s.Addr())
			// Long enough for a busy machine to get to the half, where the stall is due.
			c := dialOpenSSH(t, s, p.Port(), func(o *ssh.Options) { o.Timing.UploadStall = 3 * time.Second })
			path := newPath(t)
			half := sync.OnceFunc(func() { spoil(p) })
			var err error
			soon(t, func() {
				_, err = c.Upload(t.Context(), ssh.Upload{Source: src, Path: path, Progress: func(sent, total int64) {
					if sent >= total/2 {
						half()
					}
				}})
			})
			require.True(t, ssh.IsKind(err, ssh.KindClosed, ssh.KindTimeout), "%v", err)
			require.True(t, errorsAs(err).OutcomeUnknown())
			require.NoFileExists(t, path)
			require.FileExists(t, ssh.TempPath(path))

			p.Freeze(false)
			_, err = c.Upload(t.Context(), ssh.Upload{Source: src, Path: path, Verify: true})
			require.NoError(t, err)
			require.True(t, bytes.Equal(data, readFile(t, path)))
			require.NoFileExists(t, ssh.TempPath(path))
		})
	}
	t.Run("sftp never answers", func(t *testing.T) {
		release := make(chan struct{})
		d := startDevice(t, func(d *device) { d.config.ServerVersion = "SSH-2.0-Stuck" })
		d.stallSFTP(release)
		defer close(release)
		c := dial(t, d.port(), rightPassword, func(o *ssh.Options) { o.Timing.UploadStall = 300 * time.Millisecond })
		var err error
		soon(t, func() { _, err = c.Upload(t.Context(), ssh.Upload{Source: src, Path: newPath(t)}) })
		require.ErrorIs(t, err, ssh.ErrStalled)
	})
}

func TestI11ConnectionDiesBetweenTwoFiles(t *testing.T) {
	t.Parallel()
	s := sshtest.StartOpenSSH(t, sshtest.Options{})
	p := sshtest.StartProxy(t, s.Addr())
	c := dialOpenSSH(t, s, p.Port())
	dir := t.TempDir()
	src, data := tempFile(t, 1<<20)
	for _, name := range []string{"first", "second", "third"} {
		path := filepath.Join(dir, name)
		_, err := c.Upload(t.Context(), ssh.Upload{Source: src, Path: path})
		require.NoError(t, err, name)
		require.True(t, bytes.Equal(data, readFile(t, path)))
		p.Cut()
	}
	require.EqualValues(t, 3, p.Accepted())

	t.Run("and commands", func(t *testing.T) {
		p.Cut()
		_, err := c.Exec(t.Context(), ssh.Command{Line: "true"})
		require.NoError(t, err)
	})
}

func TestI13OldAppliance(t *testing.T) {
	t.Parallel()
	old := func(d *device) {
		d.config.KeyExchanges = []string{"diffie-hellman-group1-sha1"}
		d.config.Ciphers = []string{"aes128-cbc"}
	}
	d := startDevice(t, old)
	err := dial(t, d.port(), rightPassword).Connect(t.Context())
	require.True(t, ssh.IsKind(err, ssh.KindNegotiation), "%v", err)
	require.ErrorContains(t, err, "diffie-hellman-group1-sha1")
	require.ErrorContains(t, err, "legacy algorithms are off")
	legacy := func(o *ssh.Options) { o.Legacy = true }
	require.NoError(t, dial(t, d.port(), rightPassword, legacy).Connect(t.Context()))

	t.Run("ssh-rsa host key alone", func(t *testing.T) {
		d := startDevice(t, func(d *device) {
			signer, err := cryptossh.NewSignerWithAlgorithms(rsaKey(t).(cryptossh.AlgorithmSigner), []string{cryptossh.KeyAlgoRSA})
			require.NoError(t, err)
			d.hostKey = signer
		})
		err := dial(t, d.port(), rightPassword).Connect(t.Context())
		require.True(t, ssh.IsKind(err, ssh.KindNegotiation), "%v", err)
		require.ErrorContains(t, err, "ssh-rsa")
		require.NoError(t, dial(t, d.port(), rightPassword, legacy).Connect(t.Context()))
	})
}
