// SPDX-License-Identifier: Apache-2.0

// Package faults holds the rules by which simulated devices misbehave.
//
// A rule selects requests by device name and by resource, path or nothing, and applies one action to each, up to
// a number of times. Rules apply in the order in which they were added. All Latency and JsonMerge rules that match
// apply; of the other actions the first one wins.
//
// In JSON a rule is
//
//	{"id": "slow", "device": "compute-*",
//	 "selector": {"path": "/redfish/v1/Systems/*", "method": "GET"},
//	 "action": {"status": {"code": 503, "headers": {"Retry-After": "2"}}},
//	 "remaining": 3}
//
// where selector is "any" (or absent), {"odata_id": GLOB} or {"path": GLOB, "method": METHOD}, and action is one of
// those in Action. In patterns * is any run without a slash and ** any run. Member names are matched without case.
package faults

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/rackbus/rackbus/sim/internal/glob"
	"github.com/rackbus/rackbus/sim/internal/jsonduration"
)

// ErrInvalidRule is wrapped by errors about rules that cannot be used.
var ErrInvalidRule = errors.New("invalid fault rule")

// Rule is one fault.
type Rule struct {
	// ID names the rule; an empty one is filled when the rule is added. Adding a rule with an id in use
	// replaces that rule.
	ID string `json:"id,omitempty"`
	// Device is a pattern for node ids; empty is every device.
	Device   string   `json:"device,omitempty"`
	Selector Selector `json:"selector,omitzero"`
	Action   Action   `json:"action"`
	// Remaining is how often the rule still applies; 0 in a new rule means without limit.
	Remaining int `json:"remaining,omitempty"`
}

// Selector says which requests a rule applies to. The zero value selects all.
type Selector struct {
	// ODataID is a pattern for the resource a GET or HEAD reads.
	ODataID string `json:"odata_id,omitempty"`
	// Path is a pattern for the URL path of any request.
	Path string `json:"path,omitempty"`
	// Method restricts Path, or all requests, to one HTTP method.
	Method string `json:"method,omitempty"`
}

// Any selects every request.
func Any() Selector { return Selector{} }

// Resource selects reads of resources whose @odata.id matches the pattern.
func Resource(pattern string) Selector { return Selector{ODataID: pattern} }

// Request selects requests by method (empty for any) and path pattern.
func Request(method, path string) Selector { return Selector{Method: method, Path: path} }

// UnmarshalJSON accepts "any", a resource pattern as text, or an object.
func (s *Selector) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) == nil {
		*s = Selector{}
		if !strings.EqualFold(text, "any") {
			s.ODataID = text
		}
		return nil
	}
	var wire struct {
		ODataIDSnake string `json:"odata_id"`
		ODataIDCamel string `json:"odataId"`
		Path         string `json:"path"`
		Method       string `json:"method"`
	}
	if err := strictDecode(b, &wire); err != nil {
		return fmt.Errorf("%w: selector: %w", ErrInvalidRule, err)
	}
	*s = Selector{ODataID: wire.ODataIDSnake + wire.ODataIDCamel, Path: wire.Path, Method: strings.ToUpper(wire.Method)}
	return nil
}

// Action is what happens to a selected request. Exactly one member is set.
type Action struct {
	// JSONMerge is merged into the JSON answer (RFC 7396: null removes a member).
	JSONMerge json.RawMessage `json:"JsonMerge,omitempty"`
	// Replace is sent instead of the device's answer: reads get it with status 200 and never reach the device,
	// other requests are executed and keep their status. A JSON string is sent as it is, as text/html.
	Replace json.RawMessage `json:"Replace,omitempty"`
	// Status answers in place of the device. A request body is received first.
	Status *Status `json:"Status,omitempty"`
	// Latency delays the request before it reaches the device.
	Latency *Latency `json:"Latency,omitempty"`
	// Cut closes the connection.
	Cut *Cut `json:"Cut,omitempty"`
	// Malformed sends only the first half of the JSON answer, as a complete HTTP body.
	Malformed bool `json:"Malformed,omitempty"`
	// Redirect sends the client elsewhere without reaching the device.
	Redirect *Redirect `json:"Redirect,omitempty"`
	// Mute takes new connections and never says anything on them, not even TLS; the selector must be empty.
	// Connections that exist are cut.
	Mute bool `json:"Mute,omitempty"`
	// Refuse makes the device refuse connections and cuts those that exist; the selector must be empty.
	// Without a limit the device's port is closed while the rule stands; with one, that many connections are
	// reset before TLS.
	Refuse bool `json:"Refuse,omitempty"`
}

// UnmarshalJSON accepts an object with one member, "Malformed", "Mute" or "Refuse".
func (a *Action) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) == nil {
		*a = Action{Malformed: strings.EqualFold(text, "malformed"), Mute: strings.EqualFold(text, "mute"), Refuse: strings.EqualFold(text, "refuse")}
		return nil
	}
	type plain Action
	var wire plain
	if err := strictDecode(b, &wire); err != nil {
		return fmt.Errorf("%w: action: %w", ErrInvalidRule, err)
	}
	*a = Action(wire)
	return nil
}

// Status is an answer that the device itself did not give. It never sees the request, but with AfterExecute.
type Status struct {
	Code int `json:"code"`
	// Body is sent as JSON, a JSON string as it is; empty sends a Redfish error object.
	Body    json.RawMessage   `json:"body,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	// MessageID and Message make the body a Redfish error with this message, where Body is empty.
	MessageID string `json:"message_id,omitempty"`
	Message   string `json:"message,omitempty"`
	// Empty sends no body at all.
	Empty bool `json:"empty,omitempty"`
	// AfterExecute executes the request first, and hides what the device has answered.
	AfterExecute bool `json:"after_execute,omitempty"`
}

// UnmarshalJSON accepts a bare status code or an object.
func (s *Status) UnmarshalJSON(b []byte) error {
	var code int
	if json.Unmarshal(b, &code) == nil {
		*s = Status{Code: code}
		return nil
	}
	type plain Status
	var wire plain
	if err := strictDecode(b, &wire); err != nil {
		return fmt.Errorf("%w: status: %w", ErrInvalidRule, err)
	}
	*s = Status(wire)
	return nil
}

// Redirect is an answer with a Location. A request body is received first.
type Redirect struct {
	// Code is the status; 0 is 308.
	Code int `json:"code,omitempty"`
	// To is the Location; {path} in it is the request's path. Empty is the request's path with a slash added, and
	// then requests whose path ends in a slash are not redirected.
	To string `json:"to,omitempty"`
}

// Location returns where a request for a path is sent, and false when it is not to be redirected.
func (r Redirect) Location(path string) (string, bool) {
	if r.To == "" {
		return path + "/", !strings.HasSuffix(path, "/")
	}
	return strings.ReplaceAll(r.To, "{path}", path), true
}

// Latency is a delay of Mean plus or minus a uniform random share of Jitter.
type Latency struct {
	Mean   time.Duration
	Jitter time.Duration
}

type latencyWire struct {
	Mean   jsonduration.Duration `json:"mean"`
	Jitter jsonduration.Duration `json:"jitter,omitempty"`
}

// UnmarshalJSON reads durations as text ("250ms") or seconds.
func (l *Latency) UnmarshalJSON(b []byte) error {
	var wire latencyWire
	if err := strictDecode(b, &wire); err != nil {
		return fmt.Errorf("%w: latency: %w", ErrInvalidRule, err)
	}
	*l = Latency{Mean: time.Duration(wire.Mean), Jitter: time.Duration(wire.Jitter)}
	return nil
}

// MarshalJSON writes durations as text.
func (l Latency) MarshalJSON() ([]byte, error) {
	return json.Marshal(latencyWire{Mean: jsonduration.Duration(l.Mean), Jitter: jsonduration.Duration(l.Jitter)})
}

// Cut closes the connection with a TCP reset. The zero value does so before the request is executed.
type Cut struct {
	// AfterExecute executes the request first and sends nothing of the answer.
	AfterExecute bool `json:"after_execute,omitempty"`
	// Bytes executes the request and sends the answer's head and this many bytes of its body.
	Bytes int `json:"bytes,omitempty"`
	// RequestBytes receives this many bytes of the request's body; the request is not executed.
	RequestBytes int64 `json:"request_bytes,omitempty"`
}

// UnmarshalJSON accepts true for the zero value, or an object.
func (c *Cut) UnmarshalJSON(b []byte) error {
	var on bool
	if json.Unmarshal(b, &on) == nil && on {
		*c = Cut{}
		return nil
	}
	type plain Cut
	var wire plain
	if err := strictDecode(b, &wire); err != nil {
		return fmt.Errorf("%w: cut: %w", ErrInvalidRule, err)
	}
	*c = Cut(wire)
	return nil
}

// Validate reports what makes the rule unusable.
func (r Rule) Validate() error {
	set := 0
	for _, on := range []bool{
		len(r.Action.JSONMerge) > 0, len(r.Action.Replace) > 0, r.Action.Status != nil, r.Action.Latency != nil,
		r.Action.Cut != nil, r.Action.Malformed, r.Action.Redirect != nil, r.Action.Mute, r.Action.Refuse,
	} {
		if on {
			set++
		}
	}
	a := r.Action
	switch {
	case set != 1:
		return fmt.Errorf("%w %q: %d actions, need one of JsonMerge, Replace, Status, Latency, Cut, Malformed, Redirect, Mute, Refuse",
			ErrInvalidRule, r.ID, set)
	case a.Status != nil && (a.Status.Code < 200 || a.Status.Code > 599):
		return fmt.Errorf("%w %q: status code %d", ErrInvalidRule, r.ID, a.Status.Code)
	case a.Redirect != nil && a.Redirect.Code != 0 && (a.Redirect.Code < 300 || a.Redirect.Code > 399):
		return fmt.Errorf("%w %q: redirect with status %d", ErrInvalidRule, r.ID, a.Redirect.Code)
	case (a.Refuse || a.Mute) && r.Selector != Selector{}:
		return fmt.Errorf("%w %q: refused connections have no request to select", ErrInvalidRule, r.ID)
	case r.Selector.ODataID != "" && r.Selector.Path != "":
		return fmt.Errorf("%w %q: selector has both odata_id and path", ErrInvalidRule, r.ID)
	case r.Remaining < 0:
		return fmt.Errorf("%w %q: remaining %d", ErrInvalidRule, r.ID, r.Remaining)
	}
	return nil
}

// matcher is a rule's selection, patterns compiled once.
type matcher struct {
	device, resource, path glob.Pattern
	selector               Selector
	redirect               *Redirect
}

func newMatcher(r Rule) matcher {
	return matcher{
		device:   glob.Compile(r.Device),
		resource: glob.Compile(strings.TrimSuffix(r.Selector.ODataID, "/")),
		path:     glob.Compile(r.Selector.Path),
		selector: r.Selector,
		redirect: r.Action.Redirect,
	}
}

func (m matcher) match(device, method, path string) bool {
	if m.redirect != nil {
		if _, applies := m.redirect.Location(path); !applies {
			return false
		}
	}
	if !m.device.Match(device) || m.selector.Method != "" && m.selector.Method != method {
		return false
	}
	if m.selector.ODataID != "" {
		read := method == http.MethodGet || method == http.MethodHead
		return read && m.resource.Match(strings.TrimSuffix(path, "/"))
	}
	return m.path.Match(path)
}

func strictDecode(b []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// AppliesTo reports whether the rule's device pattern matches a node id.
func (r Rule) AppliesTo(device string) bool { return glob.Compile(r.Device).Match(device) }
