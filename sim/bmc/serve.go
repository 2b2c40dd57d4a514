// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
)

// maxJSONBody bounds JSON request bodies, in bytes; BMCs take a few KiB.
const maxJSONBody = 1 << 20

// ServeHTTP answers one Redfish request. It panics with http.ErrAbortHandler when the client went away in the
// middle of its body.
func (d *Device) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := d.answer(r)
	if a.body != nil && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") && d.Knobs().BreakGzip {
		// It says that it compressed and did not.
		a = a.with("Content-Encoding", "gzip")
	}
	a.send(w)
}

func (d *Device) answer(r *http.Request) answer {
	now := d.lock()
	down := d.unpowered || d.downUntil.After(now)
	username, password := d.cfg.Username, d.cfg.Password
	expired := d.knobs.PasswordExpired
	d.mu.Unlock()
	if down {
		return refusal(http.StatusServiceUnavailable, "ServiceTemporarilyUnavailable", "The controller is starting.")
	}

	path := strings.TrimSuffix(r.URL.Path, "/")
	open := path == rootURI || path == "/redfish" || path == sessionsURI && r.Method == http.MethodPost
	if !open {
		name, secret, ok := r.BasicAuth()
		if (!ok || name != username || secret != password) && !d.loggedIn(r.Header.Get("X-Auth-Token")) {
			return refusal(http.StatusUnauthorized, "ResourceAtUriUnauthorized", "The credentials were not accepted.").
				with("WWW-Authenticate", `Basic realm="Redfish"`)
		}
		if expired {
			return refusal(http.StatusForbidden, "PasswordChangeRequired",
				"The password has to be changed before anything else.")
		}
	}
	path, there := d.resolve(path)
	res := d.blueprint.find(path)
	if res == nil || !there {
		return notFound(path)
	}
	return d.dispatch(r, res)
}

// resolve finds inventory entries that go by another id.
func (d *Device) resolve(path string) (string, bool) {
	d.lock()
	defer d.mu.Unlock()
	return d.inventoryPath(path)
}

func (d *Device) dispatch(r *http.Request, res *resource) answer {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		if res.static == nil && res.live == nil {
			return notAllowed(r.Method)
		}
		now := d.lock()
		defer d.mu.Unlock()
		return d.read(res, now)
	case http.MethodPost, http.MethodPut:
		if res.receive != nil {
			return res.receive(d, r)
		}
		if res.post == nil || r.Method == http.MethodPut {
			return notAllowed(r.Method)
		}
		return d.change(r, res, res.post)
	case http.MethodPatch:
		if res.patch == nil {
			return notAllowed(r.Method)
		}
		if refused, bad := d.checkIfMatch(r, res); bad {
			return refused
		}
		return d.change(r, res, res.patch)
	case http.MethodDelete:
		if res.remove == nil {
			return notAllowed(r.Method)
		}
		now := d.lock()
		defer d.mu.Unlock()
		return res.remove(d, now)
	}
	return notAllowed(r.Method)
}

// read shows a resource; the device is locked.
func (d *Device) read(res *resource, now time.Time) answer {
	if res.static != nil {
		return answer{status: http.StatusOK, body: res.static}
	}
	doc := res.live(d, now)
	status := http.StatusOK
	if code, ok := doc[statusMember].(int); ok {
		delete(doc, statusMember)
		status = code
	}
	if _, empty := doc[emptyMember]; empty {
		return answer{status: status}
	}
	if status == http.StatusNotFound {
		uri, _ := doc["@odata.id"].(string)
		return notFound(uri)
	}
	a := jsonAnswer(status, doc)
	if res.etag {
		a = a.with("ETag", d.shownTag(a.body))
	}
	return a
}

func etag(body []byte) string {
	h := fnv.New32a()
	h.Write(body)
	return fmt.Sprintf(`"%08X"`, h.Sum32())
}

func (d *Device) ifMatch() IfMatch {
	return cmp.Or(d.knobs.IfMatch, d.blueprint.product.quirks.ifMatch)
}

// shownTag is the ETag of a body as clients get to see it.
func (d *Device) shownTag(body []byte) string {
	switch d.ifMatch() {
	case IfMatchEmpty:
		return ""
	case IfMatchWeak, IfMatchStrong:
		return "W/" + etag(body)
	default:
		return etag(body)
	}
}

// change decodes a JSON body and lets the action work on the locked device.
func (d *Device) change(r *http.Request, res *resource, act func(*Device, time.Time, object) answer) answer {
	raw, err := io.ReadAll(io.LimitReader(r.Body, maxJSONBody+1))
	if err != nil {
		return answer{abort: true}
	}
	body := object{}
	if len(raw) > 0 {
		kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
		if kind != "application/json" {
			return refusal(http.StatusUnsupportedMediaType, "HeaderInvalid", "The body has to be application/json.")
		}
		if err := json.Unmarshal(raw, &body); err != nil || len(raw) > maxJSONBody {
			return refusal(http.StatusBadRequest, "MalformedJSON", "The body is not a JSON object.")
		}
	}
	now := d.lock()
	defer d.mu.Unlock()
	if res.bare != nil && res.bare(d) {
		switch {
		case d.knobs.BareActions == BareActionsNeedBody && len(raw) == 0:
			return refusal(http.StatusUnsupportedMediaType, "HeaderMissing", "The request needs a JSON body.", "Content-Type")
		case d.knobs.BareActions == BareActionsRefuseBody && len(raw) > 0:
			return refusal(http.StatusBadRequest, "UnrecognizedRequestBody", "The action takes no body.")
		}
	}
	return act(d, now, body)
}

// checkIfMatch applies the If-Match rule of the device.
func (d *Device) checkIfMatch(r *http.Request, res *resource) (answer, bool) {
	now := d.lock()
	defer d.mu.Unlock()
	values, present := r.Header["If-Match"]
	mode := d.ifMatch()
	needed := mode == IfMatchRequired || mode == IfMatchWeak || mode == IfMatchStrong
	failed := refusal(http.StatusPreconditionFailed, "PreconditionFailed", "The entity tag does not match.")
	switch {
	case !present && needed:
		return refusal(http.StatusPreconditionRequired, "PreconditionRequired", "The request needs an If-Match header."), true
	case !present:
		return answer{}, false
	case mode == IfMatchRefused, mode == IfMatchEmpty:
		return failed, true
	}
	given, tag := strings.TrimSpace(values[0]), d.read(res, now).header.Get("ETag")
	switch mode {
	case IfMatchWeak:
	case IfMatchStrong:
		tag = strings.TrimPrefix(tag, "W/")
	default:
		given = strings.TrimPrefix(given, "W/")
		if given == "*" {
			return answer{}, false
		}
	}
	if given != tag {
		return failed, true
	}
	return answer{}, false
}

// errMissing and errNotAllowed are what textMember finds wrong.
var (
	errMissing    = errors.New("parameter is missing")
	errNotAllowed = errors.New("parameter value is not allowed")
)

// textMember reads a string parameter that must be one of the allowed values.
func textMember(body object, name string, allowed []string) (string, error) {
	value, ok := body[name].(string)
	if !ok {
		return "", errMissing
	}
	for _, a := range allowed {
		if a == value {
			return value, nil
		}
	}
	return value, errNotAllowed
}

// badParameter turns an error of textMember into an answer.
func badParameter(err error, action, name, value string) answer {
	if errors.Is(err, errMissing) {
		return refusal(http.StatusBadRequest, "ActionParameterMissing",
			fmt.Sprintf("%s needs the parameter %s.", action, name), action, name)
	}
	return refusal(http.StatusBadRequest, "ActionParameterNotSupported",
		fmt.Sprintf("%s does not take %q for %s.", action, value, name), value, name)
}
