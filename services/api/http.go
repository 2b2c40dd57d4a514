// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/netutil"

	"github.com/rackbus/rackbus/pkg/access"
	"github.com/rackbus/rackbus/services/api/internal/inproc"
	"github.com/rackbus/rackbus/services/console"
)

// HTTPOptions configure the listener for browsers: the web console, and the links to
// evidence.
type HTTPOptions struct {
	// Listener takes the connections; when nil the server listens on Addr.
	Listener net.Listener
	Addr     string
	// TLS configures the listener and has to verify the client certificates that are
	// shown. Without it the server must be Plaintext.
	TLS *tls.Config
	// URL is where browsers reach the listener, for the log; empty is its address.
	URL string
	// Evidence serves what lies below /evidence/, whose links need no certificate;
	// default is what GetEvidence links to, and nothing where there is no key for links.
	Evidence http.Handler
	// Console tunes the console; Conn, Secure and Logger are set by the server.
	Console console.Options
	// MaxConnections is how many connections are open at a time; default 1,000. Further
	// ones wait for one of them to be closed.
	MaxConnections int
	// HeaderTimeout bounds the header of a request, IdleTimeout a connection without
	// one; defaults 10 s and 2 min.
	HeaderTimeout, IdleTimeout time.Duration
	// PageTimeout bounds the answer to a request of the console, but for live pages;
	// default 1 min. DownloadTimeout does so for evidence; default 30 min.
	PageTimeout, DownloadTimeout time.Duration
}

// EvidencePath is below what links to evidence lie.
const EvidencePath = "/evidence/"

// consoleIdentity is who follows the jobs for all browsers together.
const consoleIdentity = "rackbus-console"

// browsers serves them.
type browsers struct {
	opts    HTTPOptions
	log     *slog.Logger
	console *console.Console
	conn    *inproc.Conn
	server  *http.Server
}

func (s *Server) newBrowsers(opts HTTPOptions) (*browsers, error) {
	for value, standard := range map[*time.Duration]time.Duration{
		&opts.HeaderTimeout: 10 * time.Second, &opts.IdleTimeout: 2 * time.Minute,
		&opts.PageTimeout: time.Minute, &opts.DownloadTimeout: 30 * time.Minute,
	} {
		if *value <= 0 {
			*value = standard
		}
	}
	if opts.MaxConnections <= 0 {
		opts.MaxConnections = 1000
	}
	if opts.Evidence == nil {
		opts.Evidence = s.evidenceHandler()
	}
	b := &browsers{opts: opts, log: s.log, conn: inproc.New(s.unaryChain, s.streamChain)}
	s.register(b.conn)
	opts.Console.Conn, opts.Console.Secure, opts.Console.Logger = b.conn, opts.TLS != nil, s.log
	var err error
	if b.console, err = console.New(opts.Console); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/", s.asPrincipal(within(opts.PageTimeout, b.console)))
	if opts.Evidence != nil {
		mux.Handle(EvidencePath, within(opts.DownloadTimeout, opts.Evidence))
	}
	b.server = &http.Server{
		Handler: mux, TLSConfig: opts.TLS, ReadHeaderTimeout: opts.HeaderTimeout, IdleTimeout: opts.IdleTimeout,
		// Every browser that does not trust the certificate yet fails a handshake.
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	return b, nil
}

// asPrincipal gives a request the role of the browser's certificate. The calls that
// the console makes for it pass the interceptors with that.
func (s *Server) asPrincipal(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(access.WithPrincipal(r.Context(), s.opts.Access.Of(r.TLS, r.RemoteAddr))))
	})
}

// within bounds how long a request and its answer may take. A live page moves its end.
func within(limit time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc, end := http.NewResponseController(w), time.Now().Add(limit)
		if err := errors.Join(rc.SetReadDeadline(end), rc.SetWriteDeadline(end)); err != nil {
			http.Error(w, "this connection cannot be bounded", http.StatusInternalServerError)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// listen takes the address.
func (b *browsers) listen(ctx context.Context) (net.Listener, error) {
	l := b.opts.Listener
	if l == nil {
		var config net.ListenConfig
		var err error
		if l, err = config.Listen(ctx, "tcp", b.opts.Addr); err != nil {
			return nil, fmt.Errorf("listen for browsers: %w", err)
		}
	}
	return netutil.LimitListener(l, b.opts.MaxConnections), nil
}

// start serves until stop is called. It tells failed when the listener fails.
func (b *browsers) start(ctx context.Context, l net.Listener, failed func(error)) (stop func(limit context.Context)) {
	scheme := "https"
	if b.opts.TLS == nil {
		scheme = "http"
	}
	url := b.opts.URL
	if url == "" {
		url = scheme + "://" + l.Addr().String()
	}
	b.log.InfoContext(ctx, "console serving", "url", url, "addr", l.Addr().String())
	if b.opts.TLS != nil {
		b.log.InfoContext(ctx, "console needs a client certificate in the browser",
			"import", "openssl pkcs12 -export -in client.crt -inkey client.key -out client.p12", "see", "docs/console.md")
	}
	following, end := context.WithCancel(access.WithPrincipal(ctx, access.Principal{Identity: consoleIdentity, Role: access.Viewer}))
	var wg sync.WaitGroup
	wg.Go(func() { b.console.Run(following) })
	wg.Go(func() {
		serve := b.server.Serve
		if b.opts.TLS != nil {
			serve = func(l net.Listener) error { return b.server.ServeTLS(l, "", "") }
		}
		if err := serve(l); !errors.Is(err, http.ErrServerClosed) {
			failed(fmt.Errorf("serve browsers: %w", err))
		}
	})
	return func(limit context.Context) {
		b.console.EndStreams()
		if err := b.server.Shutdown(limit); err != nil {
			b.log.WarnContext(ctx, "console stopped with requests in flight", "err", errors.Join(err, b.server.Close()))
		}
		end()
		wg.Wait()
		b.conn.Wait()
	}
}
