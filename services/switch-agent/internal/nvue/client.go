// SPDX-License-Identifier: Apache-2.0

package nvue

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rackbus/rackbus/pkg/secret"
	"github.com/rackbus/rackbus/pkg/telemetry"
)

// Options configures a Client. Everything has a default.
type Options struct {
	// Guard is asked before every change. Without one the client only reads.
	Guard Guard
	// Timing overrides waits and limits.
	Timing Timing
	// Logger defaults to none.
	Logger *slog.Logger
	// Dial replaces the TCP dialer. The address is always that of the Endpoint.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Client talks to one switch. It may be used by several goroutines.
type Client struct {
	*link
	username string
	password secret.Value
	timing   Timing
}

// link is what the views of one client share.
type link struct {
	endpoint Endpoint
	base     string
	guard    Guard
	log      *slog.Logger
	dial     func(ctx context.Context, network, address string) (net.Conn, error)

	mu      sync.Mutex
	active  *generation
	retired []*generation // may get idle connections from requests under way
	number  uint64        // of the last swap
	secrets []secret.Value
}

// New checks the endpoint and returns a client without a connection. It sends
// nothing.
func New(e Endpoint, o Options) (*Client, error) {
	if err := e.validate(); err != nil {
		return nil, err
	}
	l := &link{endpoint: e, base: e.base(), guard: o.Guard, log: o.Logger, dial: o.Dial}
	if l.guard == nil {
		l.guard = readOnly{}
	}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	if l.dial == nil {
		l.dial = (&net.Dialer{}).DialContext
	}
	c := &Client{link: l, username: e.Username, password: e.Password, timing: o.Timing.withDefaults()}
	l.hide(e.Password, c.basic())
	return c, nil
}

// WithCredentials returns a view of the client that logs in as somebody else. It
// shares the connections, and the choice of them, with c.
func (c *Client) WithCredentials(username string, password secret.Value) (*Client, error) {
	if err := validUser("change credentials", username); err != nil {
		return nil, err
	}
	view := *c
	view.username, view.password = username, password
	c.hide(password, view.basic())
	return &view, nil
}

// WithRequestLimit returns a view of the client whose requests may take d, for
// calls that are known to be slow or have to be quick.
func (c *Client) WithRequestLimit(d time.Duration) *Client {
	view := *c
	view.timing.Request = d
	view.timing = view.timing.withDefaults()
	return &view
}

// Username is the account the client logs in as.
func (c *Client) Username() string { return c.username }

// Endpoint tells where the switch is; its password is masked when printed.
func (c *Client) Endpoint() Endpoint { return c.endpoint }

// Timing gives the waits and limits in force.
func (c *Client) Timing() Timing { return c.timing }

// Close closes idle connections. Requests under way are not disturbed.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, g := range c.retired {
		g.close()
	}
	c.retired = nil
	if c.active != nil {
		c.active.close()
	}
}

func (c *Client) basic() secret.Value {
	return secret.New(base64.StdEncoding.EncodeToString([]byte(c.username + ":" + c.password.Reveal())))
}

// Hide makes sure that a secret never shows in a text of this client, also in
// those the switch sends back. Secrets given to Edits and Actions are hidden
// when they are sent.
func (c *Client) Hide(values ...secret.Value) { c.hide(values...) }

func (l *link) hide(values ...secret.Value) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, v := range values {
		known := func(o secret.Value) bool { return slices.Equal(o.Bytes(), v.Bytes()) }
		if !v.Empty() && !slices.ContainsFunc(l.secrets, known) {
			// A copy: the owner may wipe his own before the last error is written.
			l.secrets = append(l.secrets, secret.New(v.Reveal()))
		}
	}
}

// scrub removes secrets from a text the switch sent: our own, and what stands
// behind secret names.
func (l *link) scrub(text string) string {
	if text == "" {
		return text
	}
	return telemetry.RedactText(l.withoutOwn(text))
}

// withoutOwn removes our own secrets in the forms in which the switch may have been
// given them, the longest first since one may contain another.
func (l *link) withoutOwn(text string) string {
	l.mu.Lock()
	var forms []string
	for _, v := range l.secrets {
		plain := v.Reveal()
		forms = append(forms, plain, base64.StdEncoding.EncodeToString(v.Bytes()))
		if quoted, err := json.Marshal(plain); err == nil {
			forms = append(forms, string(quoted[1:len(quoted)-1]))
		}
	}
	l.mu.Unlock()
	slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) })
	for _, form := range forms {
		text = strings.ReplaceAll(text, form, telemetry.Mask)
	}
	return text
}
