// SPDX-License-Identifier: Apache-2.0

package console

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// contentPolicy lets a page use its own files and nothing else: no inline scripts or
// styles, nothing of other origins, no frames around it.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// hardened sets the headers of every answer and refuses what another site makes a
// browser send.
func (c *Console) hardened(next http.Handler) http.Handler {
	foreign := http.NewCrossOriginProtection()
	foreign.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.log.WarnContext(r.Context(), "console refused a request of another site", "origin", r.Header.Get("Origin"), "path", r.URL.Path)
		http.Error(w, "this request came from another site", http.StatusForbidden)
	}))
	next = foreign.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
		h.Set("Cache-Control", "no-store")
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		// Another site cannot read a stream, but could take all places with its visitors'
		// certificates.
		if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" && strings.HasPrefix(r.URL.Path, livePath) {
			http.Error(w, "this request came from another site", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// livePath is below what streams lie.
const livePath = "/live/"

// maxForm bounds what a browser may send, in bytes.
const maxForm = 16 << 10

// handler serves a page to somebody who may see it.
type handler func(w http.ResponseWriter, r *http.Request, p page)

// page is what every page has.
type page struct {
	Title string
	// Nav is the part of the console that the page belongs to.
	Nav string
	// Live is the address of the stream that keeps the page up to date; empty when
	// nothing does.
	Live string
	// Viewer is who looks, Role what they may do.
	Viewer string
	Role   rackbusv1.Role
	// Notice tells what has just been done.
	Notice string
}

// MayOperate says whether the viewer may change something.
func (p page) MayOperate() bool { return p.Role >= rackbusv1.Role_ROLE_OPERATOR }

// RoleName is the viewer's role for people.
func (p page) RoleName() string {
	return strings.ToLower(strings.TrimPrefix(p.Role.String(), "ROLE_"))
}

// guarded asks the API who calls before anything is shown. What the caller may do is
// decided by the API with every single call; this is for what is kept here.
func (c *Console) guarded(next handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), c.opts.Timing.CallLimit)
		defer cancel()
		me, err := c.access.WhoAmI(ctx, &rackbusv1.WhoAmIRequest{})
		p := page{Viewer: me.GetIdentity(), Role: me.GetRole()}
		if err == nil && p.Role < rackbusv1.Role_ROLE_VIEWER {
			err = status.Error(codes.PermissionDenied, "the certificate has no role here")
		}
		if err != nil {
			c.refuse(w, r, p, err)
			return
		}
		if !strings.HasPrefix(r.URL.Path, livePath) {
			r = r.WithContext(ctx)
		}
		next(w, r, p)
	})
}

// refuse turns somebody away who may see nothing.
func (c *Console) refuse(w http.ResponseWriter, r *http.Request, p page, err error) {
	switch status.Code(err) {
	case codes.Unauthenticated, codes.PermissionDenied:
	default:
		c.fail(w, r, p, err)
		return
	}
	p.Title = "No access"
	code := http.StatusForbidden
	if status.Code(err) == codes.Unauthenticated || r.TLS != nil && len(r.TLS.PeerCertificates) == 0 {
		code = http.StatusUnauthorized
	}
	c.render(w, r, code, "denied", deniedPage{page: p, Unknown: code == http.StatusUnauthorized, Message: status.Convert(err).Message()})
}

// deniedPage says how to get in.
type deniedPage struct {
	page
	// Unknown says that the browser showed no certificate.
	Unknown bool
	Message string
}

// A form is only taken with the token that the page before it has put into both a
// cookie and the form: another site can send forms, but neither read nor set the cookie
// of this host. The token is no session and is the same for all replicas.
const (
	tokenField    = "token"
	tokenName     = "rackbus_form"
	tokenNameHost = "__Host-" + tokenName
	tokenBytes    = 32
)

func (c *Console) cookieName() string {
	if c.opts.Secure {
		return tokenNameHost
	}
	return tokenName
}

// formToken returns the token of the browser, which it gets when it has none.
func (c *Console) formToken(w http.ResponseWriter, r *http.Request) string {
	if cookie, err := r.Cookie(c.cookieName()); err == nil && wellFormed(cookie.Value) {
		return cookie.Value
	}
	random := make([]byte, tokenBytes)
	_, _ = rand.Read(random) // never fails
	token := base64.RawURLEncoding.EncodeToString(random)
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // Secure is left out only where there is no TLS
		Name: c.cookieName(), Value: token, Path: "/", Secure: c.opts.Secure, HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
	return token
}

func wellFormed(token string) bool {
	raw, err := base64.RawURLEncoding.DecodeString(token)
	return err == nil && len(raw) == tokenBytes
}

// ownForm reports whether a form comes from a page of this console.
func (c *Console) ownForm(r *http.Request) bool {
	cookie, err := r.Cookie(c.cookieName())
	if err != nil || !wellFormed(cookie.Value) {
		return false
	}
	return subtle.ConstantTimeCompare([]byte(cookie.Value), []byte(r.PostFormValue(tokenField))) == 1
}
