// SPDX-License-Identifier: Apache-2.0

package redfish_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rackbus/rackbus/pkg/redfish"
	"github.com/rackbus/rackbus/pkg/secret"
)

const (
	user    = "admin"
	planted = "pl4nted-Secret"

	systemURI    = "/redfish/v1/Systems/System_0"
	resetURI     = systemURI + "/Actions/ComputerSystem.Reset"
	updateURI    = "/redfish/v1/UpdateService"
	multipartURI = updateURI + "/update-multipart"
	pushURI      = updateURI + "/update"
	tasksURI     = "/redfish/v1/TaskService/Tasks"
	inventoryURI = updateURI + "/FirmwareInventory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// seen is one request a bmc received.
type seen struct {
	method, path, body string
	header             http.Header
}

// bmc is a Redfish service of which a test writes every answer.
type bmc struct {
	t        *testing.T
	srv      *httptest.Server
	endpoint redfish.Endpoint
	pool     *redfish.Pool

	mu    sync.Mutex
	rules map[string]http.HandlerFunc
	log   []seen
}

// newBMC starts one on a real TLS socket.
func newBMC(t *testing.T) *bmc {
	t.Helper()
	b := &bmc{t: t, rules: map[string]http.HandlerFunc{}}
	b.srv = httptest.NewUnstartedServer(b)
	b.srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	b.srv.StartTLS()
	host, port, err := net.SplitHostPort(b.srv.Listener.Addr().String())
	require.NoError(t, err)
	number, err := strconv.ParseUint(port, 10, 16)
	require.NoError(t, err)
	b.endpoint = redfish.Endpoint{Address: host, Port: uint16(number), Username: user, Password: secret.New(planted)}
	b.pool = redfish.NewPool(redfish.PoolOptions{})
	t.Cleanup(b.close)
	return b
}

// newPipeBMC starts one on in-memory connections, for use in a synctest bubble.
// The caller closes it inside the bubble.
func newPipeBMC(t *testing.T) *bmc {
	t.Helper()
	b := &bmc{t: t, rules: map[string]http.HandlerFunc{}}
	b.srv = httptest.NewUnstartedServer(b)
	require.NoError(t, b.srv.Listener.Close())
	pipe := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
	b.srv.Listener = pipe
	b.srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	b.srv.StartTLS()
	b.endpoint = redfish.Endpoint{Address: "192.0.2.1", Username: user, Password: secret.New(planted)}
	b.pool = redfish.NewPool(redfish.PoolOptions{Dial: pipe.dial})
	return b
}

func (b *bmc) close() {
	b.pool.Close()
	b.srv.Close()
}

type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.done:
		return nil, errors.New("closed")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 443} }

// ServeHTTP records the request and answers by the rule for method and path,
// else by that for the path, else 404.
func (b *bmc) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	rule := b.rules[r.Method+" "+r.URL.Path]
	if rule == nil {
		rule = b.rules[r.URL.Path]
	}
	b.mu.Unlock()
	var body string
	if r.Header.Get("Expect") == "" {
		raw, _ := io.ReadAll(r.Body)
		body = string(raw)
		r.Body = io.NopCloser(strings.NewReader(body))
	}
	b.mu.Lock()
	b.log = append(b.log, seen{r.Method, r.URL.Path, body, r.Header.Clone()})
	b.mu.Unlock()
	if rule == nil {
		http.NotFound(w, r)
		return
	}
	rule(w, r)
}

// on sets the answer for "METHOD /path" or "/path". Several answers are given
// one after the other; the last one stays.
func (b *bmc) on(route string, answers ...http.HandlerFunc) {
	n := 0
	var mu sync.Mutex
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rules[route] = func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		answer := answers[min(n, len(answers)-1)]
		n++
		mu.Unlock()
		answer(w, r)
	}
}

// requests gives what was received with a method ("" for all) and path prefix.
func (b *bmc) requests(method, prefix string) []seen {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []seen
	for _, s := range b.log {
		if (method == "" || s.method == method) && strings.HasPrefix(s.path, prefix) {
			out = append(out, s)
		}
	}
	return out
}

// reply answers with a status, a body and headers given as pairs.
func reply(status int, body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header()[http.CanonicalHeaderKey(header[i])] = []string{header[i+1]}
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func ok(body string) http.HandlerFunc { return reply(http.StatusOK, body) }

// again answers n times the same.
func again(n int, h http.HandlerFunc) []http.HandlerFunc {
	out := make([]http.HandlerFunc, n)
	for i := range out {
		out[i] = h
	}
	return out
}

// refuse answers like a BMC that names a message.
func refuse(status int, messageID, message string) http.HandlerFunc {
	body, _ := json.Marshal(map[string]any{"error": map[string]any{
		"code": "Base.1.8.GeneralError", "message": "A general error has occurred.",
		"@Message.ExtendedInfo": []map[string]any{{
			"MessageId": messageID, "Message": message, "MessageSeverity": "Critical", "Resolution": "Do better.",
		}},
	}})
	return reply(status, string(body))
}

// members is the body of a collection.
func members(paths ...string) string {
	list := make([]map[string]string, 0, len(paths))
	for _, p := range paths {
		list = append(list, map[string]string{"@odata.id": p})
	}
	body, _ := json.Marshal(map[string]any{"Members": list, "Members@odata.count": len(paths)})
	return string(body)
}

// hang answers nothing until the client gives up.
func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// cut drops the connection without an answer.
func cut(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}

func profile(t *testing.T, nodeType string) redfish.Profile {
	t.Helper()
	p, found := redfish.LookupProfile(nodeType)
	require.True(t, found)
	return p
}

// fast has waits that a test on real sockets can afford.
func fast() redfish.Timing {
	const tick = 2 * time.Millisecond
	return redfish.Timing{
		Request: 5 * time.Second, Collection: 5 * time.Second,
		PowerOnConflictInterval: tick, InventoryInterval: tick,
		BackgroundCopyInterval: tick, BackgroundCopyLimit: 100 * tick,
		ReadyInterval: tick, StepInterval: tick, PowerPoll: tick, PowerOffSettle: tick, AuxSettle: tick,
		PowerOffLimit: 50 * tick, PowerOnLimit: 50 * tick, PowerOnLongLimit: 100 * tick, PowerOnRepeat: 5 * tick,
		BMCProbe: tick, BMCLimit: 500 * tick,
		ManagerProbe: tick, ManagerLimit: 500 * tick, ManagerLostProbe: tick, ManagerLostLimit: 100 * tick,
		ManagerSteady: 20 * tick, PowerUnitPoll: tick, PowerUnitsInterval: tick, PowerUnitsLimit: 50 * tick,
	}
}

// client makes one for this device that may change it.
func (b *bmc) client(nodeType string, change ...func(*redfish.Options)) *redfish.Client {
	b.t.Helper()
	o := redfish.Options{Profile: profile(b.t, nodeType), Guard: redfish.Unguarded{}, Pool: b.pool, Timing: fast()}
	for _, f := range change {
		f(&o)
	}
	c, err := redfish.New(b.endpoint, o)
	require.NoError(b.t, err)
	return c
}

// defaults makes a client keep the documented waits, for fake time.
func defaults(o *redfish.Options) { o.Timing = redfish.Timing{} }

const (
	gb200  = "compute_gb200_nvidia"
	gb300  = "compute_gb300_nvidia"
	liteon = "powershelf_gb200_liteon"
)

func (b *bmc) system(power string) {
	b.on(systemURI, ok(`{"Id":"System_0","PowerState":`+power+`,"Actions":{"#ComputerSystem.Reset":{"target":"`+resetURI+`"}}}`))
}

func asError(t *testing.T, err error) *redfish.Error {
	t.Helper()
	e, found := errors.AsType[*redfish.Error](err)
	require.Truef(t, found, "not a *redfish.Error: %v", err)
	return e
}
