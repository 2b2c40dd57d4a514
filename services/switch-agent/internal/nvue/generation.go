// SPDX-License-Identifier: Apache-2.0

package nvue

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"

	"github.com/rackbus/rackbus/pkg/switchtls"
)

// Security is how connections are protected.
type Security struct {
	// Material verifies the switch and identifies us. Without it the connection is
	// encrypted, but nobody is verified.
	Material *switchtls.Material
	// ServerName is the name the certificate has to be for; see
	// switchtls.Store.ServerName.
	ServerName string
}

// Unverified is the protection of insecure_switch and of switches that have no
// certificate of ours yet.
func Unverified(serverName string) Security { return Security{ServerName: serverName} }

// identity tells whether two protections are the same.
type identity struct {
	fingerprint switchtls.Fingerprint
	serverName  string
	verified    bool
}

func (s Security) identity() identity {
	id := identity{serverName: s.ServerName}
	if s.Material != nil {
		id.fingerprint, id.verified = s.Material.Fingerprint(), true
	}
	return id
}

// generation is one set of connections.
type generation struct {
	identity identity
	reads    *http.Transport
	writes   *http.Transport
}

func (g *generation) close() {
	g.reads.CloseIdleConnections()
	g.writes.CloseIdleConnections()
}

// Candidate is a generation that is not in use yet.
type Candidate struct {
	client *Client
	next   *generation
	// base is the number of the generation it was built on.
	base uint64
}

// Candidate builds connections of another protection beside the present ones.
// It sends nothing.
func (c *Client) Candidate(s Security) (*Candidate, error) {
	const op = "prepare switch connection"
	config := switchtls.Unverified(s.ServerName)
	if s.Material != nil {
		var err error
		if config, err = s.Material.ClientConfig(s.ServerName); err != nil {
			return nil, &Error{Op: op, Code: ErrFailedPrecondition, cause: err}
		}
	}
	config.NextProtos = []string{"http/1.1"}
	// No proxy, no compression, and no redirects, which a bare transport never
	// follows.
	reads := &http.Transport{
		DialTLSContext:      c.dialTLS(config, nil),
		DialContext:         refusePlain,
		DisableCompression:  true,
		IdleConnTimeout:     c.timing.Idle,
		MaxIdleConnsPerHost: 2,
		// A switch without certificates of ours may be anybody: nothing is kept.
		DisableKeepAlives: s.Material == nil,
	}
	writes := reads.Clone()
	// A change gets a connection of its own, so it can never be lost to a kept one
	// that the switch closed in that very moment.
	writes.DisableKeepAlives = true
	writes.DialTLSContext = c.dialTLS(config, checkCarried)
	c.mu.Lock()
	defer c.mu.Unlock()
	return &Candidate{client: c, base: c.number, next: &generation{identity: s.identity(), reads: reads, writes: writes}}, nil
}

// Fingerprint is that of the candidate's material, zero when it has none.
func (n *Candidate) Fingerprint() switchtls.Fingerprint { return n.next.identity.fingerprint }

// Probe sends GET /nvue_v1/system over the candidate. The answer must be a 2xx
// with JSON.
func (n *Candidate) Probe(ctx context.Context) error {
	_, err := n.client.do(ctx, call{op: "probe switch connection", method: http.MethodGet, path: resource("system"), over: n.next})
	return err
}

// Close gives up a candidate that was not activated.
func (n *Candidate) Close() { n.next.close() }

// Activate puts a candidate in the place of the present connections, in one
// step. Requests under way end on the old ones. When the connections changed
// since the candidate was built it is refused with ErrFailedPrecondition, unless
// what came is the same.
func (c *Client) Activate(n *Candidate) error {
	const op = "activate switch connection"
	if n.client.link != c.link {
		return invalid(op, "the candidate belongs to another switch")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.number != n.base {
		if c.active != nil && c.active.identity == n.next.identity {
			return nil
		}
		return &Error{Op: op, Code: ErrFailedPrecondition, reason: "the connection was changed in the meantime"}
	}
	if c.active != nil {
		c.active.close()
		c.retired = append(c.retired, c.active)
	}
	c.active = n.next
	c.number++
	return nil
}

// Prepare makes s the protection of all further requests, when the switch proves
// reachable with it. It does nothing when s is in force already; on an error the
// present connections stay.
func (c *Client) Prepare(ctx context.Context, s Security) error {
	if active := c.current(); active != nil && active.identity == s.identity() {
		return nil
	}
	n, err := c.Candidate(s)
	if err != nil {
		return err
	}
	if err := n.Probe(ctx); err != nil {
		n.Close()
		return err
	}
	return c.Activate(n)
}

// Initialize makes the configured protection of a domain the one in force; an
// empty domain is the default one. With insecure_switch that is unverified
// HTTPS, chosen without a request. Otherwise the material has to be there and the
// switch has to answer over it. When no domain was named and a verified
// connection is in force, a failure only keeps that one.
//
// A switch whose certificate is not of the domain gives an error that is both
// ErrFailedPrecondition and ErrServerCertificate.
func (c *Client) Initialize(ctx context.Context, store *switchtls.Store, domain string) error {
	const op = "initialize switch connection"
	name := store.ServerName(c.endpoint.HostName, c.endpoint.Address)
	if store.Insecure() {
		n, err := c.Candidate(Unverified(name))
		if err != nil {
			return err
		}
		if active := c.current(); active != nil && active.identity == n.next.identity {
			return nil
		}
		return c.Activate(n)
	}
	err := c.initialize(ctx, op, store, domain, name)
	if active := c.current(); err != nil && strings.TrimSpace(domain) == "" && active != nil && active.identity.verified && !interrupted(ctx, err) {
		c.log.Warn("switch connection kept, the configured one failed", slog.Any("err", err))
		return nil
	}
	return err
}

func (c *Client) initialize(ctx context.Context, op string, store *switchtls.Store, domain, name string) error {
	m, err := store.Client(domain)
	if err != nil {
		code := ErrFailedPrecondition
		if switchtls.Transient(err) {
			code = ErrUnavailable
		}
		return &Error{Op: op, Code: code, cause: err}
	}
	if err = c.Prepare(ctx, Security{Material: m, ServerName: name}); errors.Is(err, ErrServerCertificate) {
		return &Error{Op: op, Code: ErrFailedPrecondition, cause: err,
			reason: fmt.Sprintf("the switch has no certificate of domain %q for %q yet", m.Domain, name)}
	}
	return err
}

// Bootstrap is Initialize for the one workflow that gives a switch its first
// certificate. Connections in force that still serve are kept. Only when the
// fault of the configured ones is the certificate of the switch, and of nothing
// else, unverified ones are taken; weakened tells so, and a warning is logged.
func (c *Client) Bootstrap(ctx context.Context, store *switchtls.Store, domain string) (weakened bool, err error) {
	var first error
	if c.current() != nil {
		if first = c.Hello(ctx); first == nil {
			return false, nil
		}
	}
	err = c.Initialize(ctx, store, domain)
	if err == nil && first != nil {
		// Initialize changes nothing when the configured protection is in force.
		err = c.Hello(ctx)
	}
	switch {
	case err == nil:
		return false, nil
	case first != nil && !errors.Is(first, ErrServerCertificate):
		return false, first
	case !errors.Is(err, ErrServerCertificate):
		return false, err
	}
	name := store.ServerName(c.endpoint.HostName, c.endpoint.Address)
	if uerr := c.Prepare(ctx, Unverified(name)); uerr != nil {
		return false, uerr
	}
	c.log.Warn("switch connection unverified until its certificate is installed", slog.String("server_name", name), slog.Any("err", err))
	return true, nil
}

// Verified reports whether the connections in force verify the switch and
// identify us, and with which material.
func (c *Client) Verified() (switchtls.Fingerprint, bool) {
	if g := c.current(); g != nil {
		return g.identity.fingerprint, g.identity.verified
	}
	return switchtls.Fingerprint{}, false
}

func (l *link) current() *generation {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.active
}

func refusePlain(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("plain http is refused: credentials would travel in clear")
}

// dialTLS connects to the management address whatever the URL says, and asks
// for the server name of config.
func (c *Client) dialTLS(config *tls.Config, ready func(context.Context) error) func(context.Context, string, string) (net.Conn, error) {
	dial, address, limit := c.dial, c.endpoint.address(), c.timing.Connect
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		dialCtx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		raw, err := dial(dialCtx, network, address)
		if err != nil {
			if is[*net.OpError](err) {
				return nil, err
			}
			return nil, &net.OpError{Op: "dial", Net: network, Err: err}
		}
		conn := tls.Client(raw, config)
		if err := conn.HandshakeContext(ctx); err != nil {
			_ = raw.Close()
			return nil, fmt.Errorf("%w: %w", errHandshake, err)
		}
		if ready != nil {
			if err := ready(ctx); err != nil {
				_ = raw.Close()
				return nil, err
			}
		}
		return &cutConn{Conn: conn, raw: raw}, nil
	}
}

// cutConn closes at once. The farewell of TLS would wait for a switch that takes
// nothing, while a lost hold has to end the request now.
type cutConn struct {
	*tls.Conn
	raw net.Conn
}

// Close cuts the connection.
func (c *cutConn) Close() error { return c.raw.Close() }
