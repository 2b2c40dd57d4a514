// SPDX-License-Identifier: Apache-2.0

package nvswitch

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"net"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"github.com/rackbus/rackbus/sim/reqlog"
)

// Statuses of logins in the request log.
const (
	loginAccepted = 200
	loginRefused  = 401
)

var errRefused = errors.New("the password was not accepted")

// newHostKey gives the switch another host key.
func (s *Switch) newHostKey() error {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	s.signer, err = ssh.NewSignerFromKey(key)
	return err
}

// NewHostKey gives the switch another host key, as an installation does.
func (s *Switch) NewHostKey() error {
	s.lock()
	defer s.mu.Unlock()
	return s.newHostKey()
}

// HostKey returns the SSH host key.
func (s *Switch) HostKey() ssh.PublicKey {
	s.lock()
	defer s.mu.Unlock()
	return s.signer.PublicKey()
}

func (s *Switch) serveSSH() {
	for {
		c, err := s.services[serviceSSH].door.Accept()
		if err != nil {
			return
		}
		s.wg.Go(func() { s.sshConnection(c) })
	}
}

func (s *Switch) sshConnection(c net.Conn) {
	defer c.Close()
	connection, channels, requests, err := ssh.NewServerConn(c, s.sshConfig())
	if err != nil {
		return
	}
	gone := make(chan struct{})
	s.wg.Go(func() {
		defer close(gone)
		_ = connection.Wait() // why it ended does not matter
	})
	s.wg.Go(func() { ssh.DiscardRequests(requests) })
	for n := range channels {
		if n.ChannelType() != "session" {
			_ = n.Reject(ssh.UnknownChannelType, "sessions only")
			continue
		}
		channel, reqs, err := n.Accept()
		if err != nil {
			return
		}
		session := &session{sw: s, user: connection.User(), conn: c, channel: channel, gone: gone}
		s.wg.Go(func() { session.serve(reqs) })
	}
}

func (s *Switch) sshConfig() *ssh.ServerConfig {
	s.lock()
	defer s.mu.Unlock()
	config := &ssh.ServerConfig{
		MaxAuthTries: 3, ServerVersion: "SSH-2.0-OpenSSH_9.2p1",
		PasswordCallback: func(meta ssh.ConnMetadata, password []byte) (*ssh.Permissions, error) {
			return nil, s.login(meta.User(), string(password))
		},
	}
	config.AddHostKey(s.signer)
	return config
}

func (s *Switch) login(user, password string) error {
	o := s.begin(reqlog.Entry{Protocol: reqlog.SSH, Method: "LOGIN", Path: user, ReadOnly: true})
	s.pause(wait(s.Knobs().LoginDelay), nil)
	s.lock()
	accepted := s.accepts(user, password)
	s.mu.Unlock()
	if !accepted {
		o.end(loginRefused, true)
		return errRefused
	}
	o.end(loginAccepted, true)
	return nil
}

// pause waits, and reports false when the client left or the switch is closed meanwhile.
func (s *Switch) pause(d time.Duration, left <-chan struct{}) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-left:
	case <-s.ctx.Done():
	}
	return false
}

// session is a channel of a connection.
type session struct {
	sw      *Switch
	user    string
	conn    net.Conn
	channel ssh.Channel
	// gone is closed with the connection.
	gone <-chan struct{}
	// terminal says that the client asked for one.
	terminal bool
}

func (n *session) serve(requests <-chan *ssh.Request) {
	defer func() { _ = n.channel.Close() }() // the client may have closed it
	for r := range requests {
		switch r.Type {
		case "pty-req":
			n.terminal = true
			_ = r.Reply(true, nil)
		case "shell":
			_ = r.Reply(true, nil)
			left := n.leaving(requests)
			n.shell(left)
			return
		case "exec":
			var p struct{ Line string }
			if err := ssh.Unmarshal(r.Payload, &p); err != nil {
				_ = r.Reply(false, nil)
				continue
			}
			_ = r.Reply(true, nil)
			n.exec(p.Line, n.leaving(requests))
			return
		case "subsystem":
			if n.refusesSubsystem(r) {
				_ = r.Reply(false, nil)
				continue
			}
			_ = r.Reply(true, nil)
			n.leaving(requests)
			n.sftp()
			return
		default:
			_ = r.Reply(false, nil)
		}
	}
}

// leaving is closed when the client has closed the channel.
func (n *session) leaving(requests <-chan *ssh.Request) <-chan struct{} {
	left := make(chan struct{})
	n.sw.wg.Go(func() {
		defer close(left)
		ssh.DiscardRequests(requests)
	})
	return left
}

func (n *session) refusesSubsystem(r *ssh.Request) bool {
	var p struct{ Name string }
	if err := ssh.Unmarshal(r.Payload, &p); err != nil || p.Name != "sftp" {
		return true
	}
	s := n.sw
	s.lock()
	defer s.mu.Unlock()
	return s.expired[n.user] || spend(&s.knobs.SFTP.RefuseSubsystem)
}

func (n *session) sftp() {
	t := &transfers{session: n}
	server := sftp.NewRequestServer(n.channel, sftp.Handlers{FileGet: t, FilePut: t, FileCmd: t, FileList: t})
	_ = server.Serve() // ends with the channel
	_ = server.Close()
}

// exit ends a session with an exit status.
func (n *session) exit(status int) {
	_, _ = n.channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{uint32(status)}))
}
