// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/rackbus/rackbus/pkg/secret"
)

// DefaultPort of SSH servers.
const DefaultPort = 22

// ErrInvalidOptions is wrapped by every error about an Endpoint or Options.
var ErrInvalidOptions = errors.New("ssh: invalid options")

// Endpoint is where a host answers.
type Endpoint struct {
	// Address is an IP address or a name.
	Address string
	// Port is DefaultPort when 0.
	Port uint16
	// Names are further names of the same host. Its key counts as known when it is
	// recorded for any of them, and is recorded for all of them.
	Names []string
}

func (e Endpoint) port() uint16 { return cmp.Or(e.Port, DefaultPort) }

func (e Endpoint) hostPort(name string) string {
	return net.JoinHostPort(name, strconv.Itoa(int(e.port())))
}

// addresses are the host's address and names, with the port.
func (e Endpoint) addresses() []string {
	out := []string{e.hostPort(e.Address)}
	for _, name := range e.Names {
		if name != "" && name != e.Address {
			out = append(out, e.hostPort(name))
		}
	}
	return out
}

// Login is how to log in. Password or PrivateKey is needed; with both the key
// comes first.
type Login struct {
	User string
	// Password is used with the method "password", or "keyboard-interactive" where
	// the server does not offer the former. It is tried once.
	Password secret.Value
	// PrivateKey in PEM form, not encrypted.
	PrivateKey secret.Value
}

// Timing is every wait and limit of a Client. Zero fields take their defaults.
type Timing struct {
	// Connect bounds the TCP connect; default 10 s.
	Connect time.Duration
	// Handshake bounds greeting and key exchange, together; default 12 s. Login
	// bounds the authentication behind it; default 30 s, since hosts look up names
	// and ask directories.
	Handshake time.Duration
	Login     time.Duration
	// KeepAlive is the longest silence of the peer before it is asked for a sign of
	// life; default 10 s. A connection that stays silent for Misses of these is
	// closed; default 3.
	KeepAlive time.Duration
	Misses    int
	// Session bounds the opening of a session; default 10 s.
	Session time.Duration
	// Exec bounds a command that names no limit; default 30 s.
	Exec time.Duration
	// Upload bounds a whole upload; default 30 min. UploadStall bounds the time
	// without any progress in it; default 30 s.
	Upload      time.Duration
	UploadStall time.Duration
	// Close bounds the polite end of a session that is given up, before its
	// connection is cut; default 2 s.
	Close time.Duration
}

// DefaultTiming returns the waits that fit real hosts.
func DefaultTiming() Timing { return Timing{}.withDefaults() }

func (t Timing) withDefaults() Timing {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&t.Connect, 10 * time.Second},
		{&t.Handshake, 12 * time.Second},
		{&t.Login, 30 * time.Second},
		{&t.KeepAlive, 10 * time.Second},
		{&t.Session, 10 * time.Second},
		{&t.Exec, 30 * time.Second},
		{&t.Upload, 30 * time.Minute},
		{&t.UploadStall, 30 * time.Second},
		{&t.Close, 2 * time.Second},
	} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	if t.Misses <= 0 {
		t.Misses = 3
	}
	return t
}

// Options configure a Client.
type Options struct {
	// HostKeys decides which host keys are trusted. It is required: a caller that
	// wants none checked says so with AnyHostKey.
	HostKeys HostKeys
	// NewKeyOnce accepts a host key other than the recorded one at the first login
	// that succeeds, in place of the recorded ones, and then no more. It is for
	// hosts that the caller has just reinstalled or reset itself.
	NewKeyOnce bool
	// Guard is asked before anything is sent. It is required; see Unguarded.
	Guard Guard
	// Legacy also offers algorithms with known weaknesses, which old appliances
	// need (group1 and SHA-1 key exchanges, CBC ciphers, ssh-rsa signatures).
	Legacy bool
	Timing Timing
	// Dial replaces the TCP dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Logger defaults to one that discards.
	Logger *slog.Logger
}

func (o Options) withDefaults(e Endpoint, l Login) (Options, error) {
	switch {
	case e.Address == "":
		return o, fmt.Errorf("%w: no address", ErrInvalidOptions)
	case l.User == "":
		return o, fmt.Errorf("%w: no user", ErrInvalidOptions)
	case l.Password.Empty() && l.PrivateKey.Empty():
		return o, fmt.Errorf("%w: neither password nor key", ErrInvalidOptions)
	case o.HostKeys == nil:
		return o, fmt.Errorf("%w: no host key policy", ErrInvalidOptions)
	case o.Guard == nil:
		return o, fmt.Errorf("%w: no guard", ErrInvalidOptions)
	}
	o.Timing = o.Timing.withDefaults()
	if o.Dial == nil {
		// Keep-alives are this package's own.
		o.Dial = (&net.Dialer{KeepAlive: -1}).DialContext
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}
