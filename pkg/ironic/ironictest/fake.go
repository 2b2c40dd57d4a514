// SPDX-License-Identifier: Apache-2.0

// Package ironictest is a small Ironic for tests: a real HTTPS server with the
// resources that a diagnosis reads, the versions of its API, and a Keystone.
package ironictest

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Account of the fake.
const (
	User     = "rackbus"
	Password = "s3cret-of-ironic"

	token = "a-token-of-keystone" //nolint:gosec // nothing else takes it
)

// Object is a JSON object.
type Object = map[string]any

// Request is one request to the fake.
type Request struct {
	Method, Path, Version string
}

// Fake is a running Ironic.
type Fake struct {
	t      testing.TB
	server *httptest.Server

	mu       sync.Mutex
	auth     string
	maximum  int
	nodes    []Object
	below    map[string]Object
	minimum  map[string]int
	answer   func(w http.ResponseWriter, r *http.Request) bool
	requests []Request
}

// Start runs a fake until the test ends. It lets everybody in.
func Start(t testing.TB) *Fake {
	t.Helper()
	f := &Fake{t: t, auth: "none", maximum: 95, below: map[string]Object{}, minimum: map[string]int{
		"traits": 37, "allocation": 52, "history": 78, "inventory": 81, "conductors": 49, "ports/detail": 1, "validate": 1,
	}}
	f.server = httptest.NewTLSServer(f)
	t.Cleanup(f.server.Close)
	return f
}

// URL is the endpoint, KeystoneURL that of Keystone.
func (f *Fake) URL() string { return f.server.URL }

// KeystoneURL is the endpoint of Keystone.
func (f *Fake) KeystoneURL() string { return f.server.URL + "/identity/v3" }

// CAFile is a file with the authority of the server's certificate.
func (f *Fake) CAFile() string {
	f.t.Helper()
	path := filepath.Join(f.t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.server.Certificate().Raw})
	require.NoError(f.t, os.WriteFile(path, block, 0o600))
	return path
}

// SetAuth is how the fake lets callers in: none, http_basic or keystone.
func (f *Fake) SetAuth(auth string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.auth = auth
}

// SetMaximum is the newest minor version that the fake knows.
func (f *Fake) SetMaximum(minor int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.maximum = minor
}

// AddNode adds a node; what is not given is that of a healthy one.
func (f *Fake) AddNode(name string, members Object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := Object{
		"uuid": fmt.Sprintf("11111111-0000-4000-8000-%012d", len(f.nodes)+1), "name": name, "driver": "redfish",
		"provision_state": "active", "target_provision_state": nil, "power_state": "power on", "target_power_state": nil,
		"last_error": nil, "maintenance": false, "fault": nil, "instance_uuid": nil, "reservation": nil,
		"driver_info": Object{}, "conductor": "conductor-1",
	}
	maps.Copy(n, members)
	f.nodes = append(f.nodes, n)
	f.below[name+"/history"] = Object{"history": []any{}}
}

// Change changes members of a node.
func (f *Fake) Change(name string, members Object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range f.nodes {
		if n["name"] == name {
			maps.Copy(n, members)
		}
	}
}

// Set gives a node a resource below it, for example "history", or with an empty name
// one of the service, for example "conductors".
func (f *Fake) Set(name, below string, doc Object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.below[name+"/"+below] = doc
}

// Answer is asked first for every request; it returns whether it has answered. It may
// wait.
func (f *Fake) Answer(answer func(w http.ResponseWriter, r *http.Request) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

// Requests are those made so far.
func (f *Fake) Requests() []Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]Request(nil), f.requests...)
}

// ServeHTTP answers a request.
func (f *Fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.requests = append(f.requests, Request{r.Method, r.URL.Path, r.Header.Get("X-OpenStack-Ironic-API-Version")})
	answer := f.answer
	f.mu.Unlock()
	if answer != nil && answer(w, r) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if rest, ok := strings.CutPrefix(r.URL.Path, "/identity/"); ok {
		f.keystone(w, r, rest)
		return
	}
	w.Header().Set("X-OpenStack-Ironic-API-Minimum-Version", "1.1")
	w.Header().Set("X-OpenStack-Ironic-API-Maximum-Version", "1."+strconv.Itoa(f.maximum))
	path := strings.Trim(strings.TrimPrefix(r.URL.Path, "/v1"), "/")
	switch {
	case r.Method != http.MethodGet:
		refuse(w, http.StatusMethodNotAllowed, "this client only reads")
	case path == "":
		send(w, http.StatusOK, Object{"id": "v1", "version": Object{"version": "1." + strconv.Itoa(f.maximum)}})
	case !f.admits(r):
		refuse(w, http.StatusUnauthorized, "The request you have made requires authentication.")
	default:
		f.resource(w, r, path)
	}
}

func (f *Fake) admits(r *http.Request) bool {
	switch f.auth {
	case "http_basic":
		user, password, _ := r.BasicAuth()
		return user == User && password == Password
	case "keystone":
		return r.Header.Get("X-Auth-Token") == token
	default:
		return true
	}
}

// resource answers in the version that the request names.
func (f *Fake) resource(w http.ResponseWriter, r *http.Request, path string) {
	minor, err := strconv.Atoi(strings.TrimPrefix(r.Header.Get("X-OpenStack-Ironic-API-Version"), "1."))
	if err != nil {
		minor = 1
	}
	if minor > f.maximum {
		refuse(w, http.StatusNotAcceptable, "Version "+strconv.Itoa(minor)+" was requested but the service only supports versions up to it.")
		return
	}
	name, below := "", path
	if rest, ok := strings.CutPrefix(path, "nodes/"); ok {
		ident, more, _ := strings.Cut(rest, "/")
		n := f.find(ident)
		if n == nil {
			refuse(w, http.StatusNotFound, "Node "+ident+" could not be found.")
			return
		}
		if more == "" {
			send(w, http.StatusOK, n)
			return
		}
		name, below = n["name"].(string), more
	}
	doc, found := f.below[name+"/"+below]
	if !found || minor < f.minimum[below] {
		refuse(w, http.StatusNotFound, "Not found")
		return
	}
	send(w, http.StatusOK, doc)
}

func (f *Fake) find(ident string) Object {
	for _, n := range f.nodes {
		if n["uuid"] == ident || n["name"] == ident {
			return n
		}
	}
	return nil
}

// keystone gives tokens for the account.
func (f *Fake) keystone(w http.ResponseWriter, r *http.Request, path string) {
	if r.Method != http.MethodPost || path != "v3/auth/tokens" {
		http.NotFound(w, r)
		return
	}
	var body struct {
		Auth struct {
			Identity struct {
				Password struct {
					User struct{ Name, Password string }
				}
			}
		}
	}
	err := json.NewDecoder(r.Body).Decode(&body)
	if u := body.Auth.Identity.Password.User; err != nil || u.Name != User || u.Password != Password {
		send(w, http.StatusUnauthorized, Object{"error": Object{"code": 401, "message": "The request you have made requires authentication."}})
		return
	}
	w.Header().Set("X-Subject-Token", token)
	send(w, http.StatusCreated, Object{"token": Object{"expires_at": "2099-01-01T00:00:00.000000Z", "catalog": []any{}}})
}

func send(w http.ResponseWriter, status int, doc any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(doc) // a client that has left is none of the test's
}

// refuse answers as Ironic does: the fault is a text in a text.
func refuse(w http.ResponseWriter, status int, text string) {
	inner, _ := json.Marshal(Object{"debuginfo": nil, "faultcode": "Client", "faultstring": text}) // texts marshal
	send(w, status, Object{"error_message": string(inner)})
}
