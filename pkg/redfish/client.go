// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"encoding/base64"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// Options configures a Client. Profile is required, all else has a default.
type Options struct {
	// Profile says what kind of device the endpoint is.
	Profile Profile
	// Guard is asked before every change. Without one the client only reads.
	Guard Guard
	// Pool holds the connections. Without one the client makes its own, with
	// certificate verification off, and closes it in Close.
	Pool *Pool
	// Timing overrides waits and limits.
	Timing Timing
	// MembersBytes bounds the members that a collection shows whole; 0 is 32 MiB.
	MembersBytes int
	// UserAgent defaults to "rackbus".
	UserAgent string
	// Logger defaults to none.
	Logger *slog.Logger
}

// Client talks to one device. It is cheap: thousands may share one Pool. It may
// be used by several goroutines, although BMCs serve one request at a time best.
type Client struct {
	endpoint  Endpoint
	base      string
	profile   Profile
	timing    Timing
	userAgent string
	log       *slog.Logger
	transport http.RoundTripper
	// membersBytes bounds the members that a collection shows whole.
	membersBytes int
	// idle is how long the pool keeps a connection.
	idle    time.Duration
	ownPool *Pool

	// shelfChassis and powerShelf are where a shelf was found to be read and to be
	// switched.
	shelfChassis atomic.Pointer[string]
	powerShelf   atomic.Pointer[string]
}

// New checks the endpoint and returns a client. It sends nothing.
func New(e Endpoint, o Options) (*Client, error) {
	if err := e.validate(); err != nil {
		return nil, err
	}
	if err := o.Profile.Validate(); err != nil {
		return nil, err
	}
	c := &Client{
		endpoint:  e,
		base:      "https://" + e.host(),
		profile:   o.Profile,
		timing:    o.Timing.withDefaults(),
		userAgent: o.UserAgent,
		log:       o.Logger,
	}
	if c.membersBytes = o.MembersBytes; c.membersBytes <= 0 {
		c.membersBytes = defaultMembersBytes
	}
	if c.userAgent == "" {
		c.userAgent = "rackbus"
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	pool, guard := o.Pool, o.Guard
	if pool == nil {
		pool = NewPool(PoolOptions{})
		c.ownPool = pool
	}
	if guard == nil {
		guard = readOnly{}
	}
	c.idle = pool.idle
	c.transport = &guardTransport{pool: pool, guard: guard}
	return c, nil
}

// Profile returns the profile the client was made with.
func (c *Client) Profile() Profile { return c.profile }

// Close closes the idle connections of a client that has its own pool.
func (c *Client) Close() {
	if c.ownPool != nil {
		c.ownPool.Close()
	}
}

// authorization is built per request, so that the secret rests in one place.
func (c *Client) authorization() string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(c.endpoint.Username+":"+c.endpoint.Password.Reveal()))
}

// mask stands where a credential was, as in logs.
const mask = "XXXX"

// scrub removes our own credentials from a text the device sent.
func (c *Client) scrub(s string) string {
	if s == "" {
		return s
	}
	_, encoded, _ := strings.Cut(c.authorization(), " ")
	s = strings.ReplaceAll(s, encoded, mask)
	if c.endpoint.Password.Empty() {
		return s
	}
	return strings.ReplaceAll(s, c.endpoint.Password.Reveal(), mask)
}
