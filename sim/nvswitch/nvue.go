// SPDX-License-Identifier: Apache-2.0

package nvswitch

import (
	"cmp"
	"crypto/subtle"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/rackbus/rackbus/sim/internal/exchange"
	"github.com/rackbus/rackbus/sim/reqlog"
)

const (
	nvueRoot = "/nvue_v1"
	// maxBody bounds request bodies, in bytes.
	maxBody = 1 << 20
)

// reply is an answer of NVUE.
type reply struct {
	status int
	body   any
}

func ok(body any) reply { return reply{status: http.StatusOK, body: body} }

// refusal is an error in NVUE's form.
func refusal(status int, detail string) reply {
	return reply{status: status, body: errorBody(status, "", detail)}
}

func errorBody(status int, _, detail string) any {
	return object{
		"type": "about:blank", "title": http.StatusText(status), "status": status,
		"detail": cmp.Or(detail, "The request failed."),
	}
}

func notFound(path string) reply { return refusal(http.StatusNotFound, "Nothing is at "+path+".") }

// call is one authenticated request.
type call struct {
	r   *http.Request
	now time.Time
	// path is the URL path below the API's root.
	path string
	// body is the decoded object of the request; verb and parameters are those of an action.
	body       object
	verb       string
	parameters object
}

func (c *call) parameter(name string) string {
	text, _ := c.parameters[name].(string)
	return text
}

// newNVUE returns the handler of the NVUE service.
func (s *Switch) newNVUE() http.Handler {
	s.nvueHTTP = &exchange.Server{Faults: s.opts.Faults, Log: s.opts.Log, Protocol: reqlog.NVUE, ErrorBody: errorBody}
	device := &endpoint{sw: s, name: serviceNVUE, mux: s.nvueMux()}
	return device.handler(s.nvueHTTP)
}

// endpoint is an HTTP service as requests see it.
type endpoint struct {
	sw   *Switch
	name string
	mux  http.Handler
}

func (e *endpoint) handler(server *exchange.Server) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		server.Serve(w, r, e, r.Context().Value(connKey{}).(*conn))
	})
}

// ID is the node id.
func (e *endpoint) ID() string { return e.sw.opts.ID }

// Refusing reports whether the service takes no connections now.
func (e *endpoint) Refusing() bool {
	e.sw.lock()
	defer e.sw.mu.Unlock()
	return !e.sw.openLocked(e.name)
}

// Reconcile lets the effects of a request show.
func (e *endpoint) Reconcile() { e.sw.Reconcile() }

// ServeHTTP answers a request.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) { e.mux.ServeHTTP(w, r) }

// handle makes a handler of a function that runs with the switch locked.
func (s *Switch) handle(f func(*Switch, *call) reply) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		answer := s.answer(r, f)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(answer.status)
		_ = json.NewEncoder(w).Encode(answer.body) // the exchange keeps it; a client that left is seen there
	}
}

func (s *Switch) answer(r *http.Request, f func(*Switch, *call) reply) reply {
	c := &call{r: r, path: strings.TrimPrefix(r.URL.Path, nvueRoot)}
	raw, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		panic(http.ErrAbortHandler) // the client left in the middle of its body
	}
	c.now = s.lock()
	defer s.mu.Unlock()
	if !s.authenticated(r) {
		return refusal(http.StatusUnauthorized, "The credentials were not accepted.")
	}
	if len(raw) > 0 {
		if r.Header.Get("Content-Type") != "application/json" {
			return refusal(http.StatusUnsupportedMediaType, "The body has to be application/json.")
		}
		if json.Unmarshal(raw, &c.body) != nil || len(raw) > maxBody {
			return refusal(http.StatusBadRequest, "The body is not a JSON object.")
		}
	}
	for name, start := range c.body {
		if fields, isObject := start.(object); isObject && strings.HasPrefix(name, "@") {
			c.verb = name
			c.parameters, _ = fields["parameters"].(object)
			if fields["state"] != "start" {
				return refusal(http.StatusBadRequest, "An action needs the state start.")
			}
		}
	}
	reqlog.FromContext(r.Context()).Verb = c.verb
	return f(s, c)
}

func (s *Switch) authenticated(r *http.Request) bool {
	user, given, found := r.BasicAuth()
	return found && !s.expired[user] && s.accepts(user, given)
}

// accepts reports whether a password is that of a user, expired or not.
func (s *Switch) accepts(user, given string) bool {
	password, found := s.password(user)
	return found && subtle.ConstantTimeCompare([]byte(password), []byte(given)) == 1
}

// nvueMux is the table of NVUE's resources.
func (s *Switch) nvueMux() http.Handler {
	mux := http.NewServeMux()
	at := func(method, path string, f func(*Switch, *call) reply) {
		mux.HandleFunc(method+" "+nvueRoot+path, s.handle(f))
	}
	at("POST", "/revision", createRevision)
	at("GET", "/revision/{id}", readRevision)
	at("PATCH", "/revision/{id}", changeRevision)
	at("DELETE", "/revision/{id}", deleteRevision)
	at("GET", "/action", listActions)
	at("GET", "/action/{id}", readAction)
	for _, path := range []string{
		gnmiPath, gnmiMTLS, apiPath, apiMTLS, usersPath + "/{user}", clusterPath, "/cluster/node/{kind}/server", asicPath,
	} {
		at("PATCH", path, stagePatch)
	}
	at("DELETE", "/cluster/node/{kind}", stageRemoval)
	addSystem(at)
	addSecurity(at)
	addCluster(at)
	addPlatform(at)
	mux.HandleFunc("/", s.handle(func(_ *Switch, c *call) reply { return notFound(c.r.URL.Path) }))
	return mux
}

// route adds a resource.
type route = func(method, path string, f func(*Switch, *call) reply)

// post makes a POST handler of a table of verbs.
func post(verbs map[string]func(*Switch, *call) reply) func(*Switch, *call) reply {
	return func(s *Switch, c *call) reply {
		f := verbs[c.verb]
		if f == nil {
			return refusal(http.StatusBadRequest, "The resource does not have this action.")
		}
		return f(s, c)
	}
}
