// SPDX-License-Identifier: Apache-2.0

package ssh_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"flag"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pkg/sftp"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	cryptossh "golang.org/x/crypto/ssh"

	"github.com/rackbus/rackbus/pkg/secret"
	"github.com/rackbus/rackbus/pkg/ssh"
	"github.com/rackbus/rackbus/pkg/ssh/sshtest"
)

// The tests wait for slow lines and silent servers, hardly ever for a processor.
const sideBySide = "3"

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", sideBySide); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// patience bounds what a test waits for.
const patience = 20 * time.Second

const rightPassword = "pl4nted-p4ss"

// device is a server of our own, for what OpenSSH would not do.
type device struct {
	t      testing.TB
	l      net.Listener
	config *cryptossh.ServerConfig
	// hostKey is an ed25519 one unless set.
	hostKey cryptossh.Signer
	// exec handles a command; by default it says "ok".
	exec func(ch cryptossh.Channel, line string)
	// silent servers take no session.
	silent atomic.Bool
	// stuck holds up SFTP until it is closed.
	stuck <-chan struct{}
	// attempts counts the passwords that were tried, by method.
	mu       sync.Mutex
	attempts map[string]int
	wg       sync.WaitGroup
	conns    map[net.Conn]struct{}
}

func startDevice(t testing.TB, change ...func(*device)) *device {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	d := &device{t: t, l: l, config: &cryptossh.ServerConfig{MaxAuthTries: -1}, attempts: map[string]int{}, conns: map[net.Conn]struct{}{}}
	d.exec = func(ch cryptossh.Channel, _ string) {
		io.WriteString(ch, "ok")
		exit(ch, 0)
	}
	d.config.PasswordCallback = func(_ cryptossh.ConnMetadata, password []byte) (*cryptossh.Permissions, error) {
		return nil, d.judge("password", string(password))
	}
	for _, c := range change {
		c(d)
	}
	if d.hostKey == nil {
		d.hostKey = ed25519Key(t)
	}
	d.config.AddHostKey(d.hostKey)
	d.wg.Go(d.serve)
	t.Cleanup(func() {
		l.Close()
		d.kill()
		d.wg.Wait()
	})
	return d
}

func (d *device) judge(method, password string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.attempts[method]++
	if password != rightPassword {
		return errors.New("wrong")
	}
	return nil
}

func (d *device) tried() map[string]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := map[string]int{}
	for k, v := range d.attempts {
		out[k] = v
	}
	return out
}

func (d *device) port() uint16 { return uint16(d.l.Addr().(*net.TCPAddr).Port) }

// kill cuts all connections.
func (d *device) kill() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.conns {
		c.Close()
	}
}

func (d *device) serve() {
	for {
		c, err := d.l.Accept()
		if err != nil {
			return
		}
		d.mu.Lock()
		d.conns[c] = struct{}{}
		d.mu.Unlock()
		d.wg.Go(func() { d.connection(c) })
	}
}

func (d *device) connection(c net.Conn) {
	defer c.Close()
	_, channels, requests, err := cryptossh.NewServerConn(c, d.config)
	if err != nil {
		return
	}
	d.wg.Go(func() { cryptossh.DiscardRequests(requests) })
	for n := range channels {
		if d.silent.Load() {
			continue
		}
		ch, reqs, err := n.Accept()
		if err != nil {
			return
		}
		d.wg.Go(func() { d.session(ch, reqs) })
	}
}

func (d *device) session(ch cryptossh.Channel, reqs <-chan *cryptossh.Request) {
	defer ch.Close()
	for r := range reqs {
		switch r.Type {
		case "exec":
			var p struct{ Line string }
			_ = cryptossh.Unmarshal(r.Payload, &p)
			r.Reply(true, nil)
			d.wg.Go(func() { cryptossh.DiscardRequests(reqs) })
			d.exec(ch, p.Line)
			return
		case "subsystem":
			r.Reply(true, nil)
			d.wg.Go(func() { cryptossh.DiscardRequests(reqs) })
			if d.stuck != nil {
				<-d.stuck
				return
			}
			s, err := sftp.NewServer(ch)
			if err != nil {
				return
			}
			_ = s.Serve()
			return
		case "pty-req":
			r.Reply(true, nil)
		case "shell":
			r.Reply(true, nil)
			d.wg.Go(func() { cryptossh.DiscardRequests(reqs) })
			d.exec(ch, "")
			return
		default:
			r.Reply(false, nil)
		}
	}
}

func exit(ch cryptossh.Channel, status uint32) {
	ch.SendRequest("exit-status", false, cryptossh.Marshal(struct{ Status uint32 }{status}))
}

func ed25519Key(t testing.TB) cryptossh.Signer {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	s, err := cryptossh.NewSignerFromKey(key)
	require.NoError(t, err)
	return s
}

func rsaKey(t testing.TB) cryptossh.Signer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	s, err := cryptossh.NewSignerFromKey(key)
	require.NoError(t, err)
	return s
}

// timing is for a machine that is busy with others; limits that a test is about are set by it.
func timing() ssh.Timing {
	return ssh.Timing{
		Connect: patience, Handshake: patience, Login: patience, Session: patience,
		KeepAlive: patience, Exec: patience, Upload: 3 * patience, UploadStall: patience, Close: 200 * time.Millisecond,
	}
}

// dial returns a client of the device with a password.
func dial(t testing.TB, port uint16, password string, change ...func(*ssh.Options)) *ssh.Client {
	t.Helper()
	return newClient(t, ssh.Endpoint{Address: "127.0.0.1", Port: port},
		ssh.Login{User: "admin", Password: secret.New(password)}, change...)
}

// dialOpenSSH returns a client of a real server with the user's key.
func dialOpenSSH(t testing.TB, s *sshtest.OpenSSH, port uint16, change ...func(*ssh.Options)) *ssh.Client {
	t.Helper()
	return newClient(t, ssh.Endpoint{Address: "127.0.0.1", Port: port}, ssh.Login{User: s.User, PrivateKey: s.Key}, change...)
}

func newClient(t testing.TB, e ssh.Endpoint, l ssh.Login, change ...func(*ssh.Options)) *ssh.Client {
	t.Helper()
	o := ssh.Options{HostKeys: ssh.AnyHostKey{}, Guard: ssh.Unguarded{}, Timing: timing(), Logger: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&o)
	}
	client, err := ssh.New(e, l, o)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

// keys opens a known_hosts file under a policy.
func keys(t testing.TB, policy ssh.Policy, path string, log *slog.Logger) ssh.HostKeys {
	t.Helper()
	k, err := ssh.OpenHostKeys(policy, path, log)
	require.NoError(t, err)
	return k
}

func withKeys(k ssh.HostKeys) func(*ssh.Options) { return func(o *ssh.Options) { o.HostKeys = k } }

// soon says that f ends by a limit of some hundred milliseconds, not by those that it would end by otherwise.
func soon(t testing.TB, f func()) {
	t.Helper()
	start := time.Now()
	f()
	require.Less(t, time.Since(start), patience/2)
}

func tempFile(t testing.TB, size int) (*io.SectionReader, []byte) {
	t.Helper()
	data := make([]byte, size)
	rand.Read(data)
	return io.NewSectionReader(bytes.NewReader(data), 0, int64(size)), data
}

func newPath(t testing.TB) string { return filepath.Join(t.TempDir(), "image.bin") }

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	return data
}

func (d *device) stallSFTP(release <-chan struct{}) { d.stuck = release }

func portText(port uint16) string { return strconv.Itoa(int(port)) }

func errorsAs(err error) *ssh.Error {
	var e *ssh.Error
	if !errors.As(err, &e) {
		return &ssh.Error{}
	}
	return e
}

func fingerprintOf(t testing.TB, line string) string {
	t.Helper()
	key, _, _, _, err := cryptossh.ParseAuthorizedKey([]byte(line))
	require.NoError(t, err)
	return cryptossh.FingerprintSHA256(key)
}
