// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"syscall"
	"time"

	"github.com/rackbus/rackbus/pkg/secret"
)

// tokenHeader carries the access token of Artifactory.
const tokenHeader = "X-JFrog-Art-Api" //nolint:gosec // the name of a header

// bodyDrain is how much of an unwanted answer is read so that its connection can
// be used again.
const bodyDrain = 64 << 10

// web asks HTTP servers, within the policy.
type web struct {
	policy    *Policy
	transport *http.Transport
	redirects int
}

func newWeb(o *Options) *web {
	dialer := &net.Dialer{
		Timeout: o.Timing.Connect, Resolver: o.Resolver,
		// It sees the address that is about to be contacted, whatever led to it.
		Control: func(_, address string, _ syscall.RawConn) error {
			a, err := netip.ParseAddrPort(address)
			if err != nil {
				return fmt.Errorf("%w: address %s", ErrRefused, address)
			}
			return o.Policy.checkAddress(a.Addr())
		},
	}
	return &web{policy: &o.Policy, redirects: o.Limits.Redirects, transport: &http.Transport{
		// No proxy: it would be the only address that the policy gets to see.
		DialContext:         dialer.DialContext,
		TLSClientConfig:     &tls.Config{RootCAs: o.Roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: o.Timing.Connect,
		MaxIdleConns:        o.Limits.Concurrent,
		IdleConnTimeout:     10 * time.Second,
		// A file must arrive as it is stored.
		DisableCompression: true,
		ForceAttemptHTTP2:  true,
	}}
}

// do sends a request and follows redirects within the policy. The token goes to
// the location's own host only, and nothing tells a host where the request came
// from. The caller closes the body.
func (w *web) do(ctx context.Context, method string, l Location, token secret.Value, header http.Header) (*http.Response, error) {
	at := l.url
	for range w.redirects + 1 {
		if err := w.policy.checkURL(at); err != nil {
			return nil, err
		}
		req, err := http.NewRequestWithContext(ctx, method, at.String(), nil)
		if err != nil {
			return nil, fmt.Errorf("%w: it is no URL", ErrLocation)
		}
		req.Header = header.Clone()
		req.Header.Set("User-Agent", "rackbus")
		if user := at.User; user != nil {
			password, _ := user.Password()
			req.SetBasicAuth(user.Username(), password)
		}
		if l.token && !token.Empty() && sameOrigin(l.url, at) {
			req.Header.Set(tokenHeader, token.Reveal())
		}
		res, err := w.transport.RoundTrip(req)
		if err != nil {
			return nil, classify(err)
		}
		if !redirected(res) {
			return res, nil
		}
		discard(res)
		next, err := at.Parse(res.Header.Get("Location"))
		if err != nil || next.Hostname() == "" {
			return nil, fmt.Errorf("%w: redirect to something that is no URL", ErrStatus)
		}
		if next.User != nil && !sameOrigin(at, next) {
			next.User = nil
		}
		if err := w.policy.checkRedirect(at, next); err != nil {
			return nil, err
		}
		at = next
	}
	return nil, fmt.Errorf("%w: more than %d redirects", ErrStatus, w.redirects)
}

func sameOrigin(a, b *url.URL) bool { return a.Scheme == b.Scheme && a.Host == b.Host }

func redirected(res *http.Response) bool {
	switch res.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return res.Header.Get("Location") != ""
	default:
		return false
	}
}

// refusal is the error for an answer that is not the file.
func refusal(res *http.Response, most time.Duration) error {
	err := fmt.Errorf("%w: status %d", ErrStatus, res.StatusCode)
	switch {
	case res.StatusCode == http.StatusRequestTimeout, res.StatusCode == http.StatusTooEarly,
		res.StatusCode == http.StatusTooManyRequests, res.StatusCode >= 500 && res.StatusCode != http.StatusNotImplemented:
		return &transientError{err: err, after: min(retryAfter(res), most)}
	}
	return err
}

func retryAfter(res *http.Response) time.Duration {
	v := res.Header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(v, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}

// discard ends an answer whose body is not wanted.
func discard(res *http.Response) {
	buf := make([]byte, 4<<10)
	for read := 0; read < bodyDrain; {
		n, err := res.Body.Read(buf)
		read += n
		if err != nil {
			break
		}
	}
	_ = res.Body.Close() // nothing was wanted from it
}

// stallWatch ends a context when nothing happens for too long.
type stallWatch struct {
	timer *time.Timer
	limit time.Duration
}

func watchStall(ctx context.Context, limit time.Duration) (context.Context, *stallWatch, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &stallWatch{limit: limit, timer: time.AfterFunc(limit, func() { cancel(errStalled) })}
	return ctx, s, func() {
		s.timer.Stop()
		cancel(context.Canceled)
	}
}

func (s *stallWatch) alive() { s.timer.Reset(s.limit) }

// stalled gives an error that a stall has led to its reason.
func stalled(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errStalled) {
		return transient(errStalled)
	}
	return err
}
