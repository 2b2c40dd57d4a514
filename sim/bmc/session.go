// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"crypto/rand"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"
)

const sessionsURI = rootURI + "/SessionService/Sessions"

// addSessions adds the SessionService, which is of use only when the knob SessionSlots opens it.
func (b *Blueprint) addSessions() {
	b.live(rootURI+"/SessionService", func(d *Device, _ time.Time) object {
		return object{
			"@odata.type": "#SessionService.v1_1_8.SessionService", "Id": "SessionService", "Name": "Session Service",
			"ServiceEnabled": d.knobs.SessionSlots > 0, "Sessions": link(sessionsURI),
		}
	})
	b.live(sessionsURI, func(d *Device, _ time.Time) object {
		var members []string
		for _, id := range slices.Sorted(maps.Values(d.sessions)) {
			members = append(members, sessionsURI+"/"+id)
		}
		return collection("SessionCollection", "Session Collection", members)
	}).post = openSession
}

// openSession logs in. The slots are all there are: a session stays until it is deleted or the BMC restarts.
func openSession(d *Device, _ time.Time, body object) answer {
	name, _ := body["UserName"].(string)
	password, _ := body["Password"].(string)
	switch {
	case d.knobs.SessionSlots == 0:
		return refusal(http.StatusServiceUnavailable, "ServiceDisabled", "The session service is disabled.")
	case name != d.cfg.Username || password != d.cfg.Password:
		return refusal(http.StatusUnauthorized, "ResourceAtUriUnauthorized", "The credentials were not accepted.")
	case len(d.sessions) >= d.knobs.SessionSlots:
		return refusal(http.StatusServiceUnavailable, "SessionLimitExceeded", "All sessions are in use.")
	}
	d.sessionN++
	id, token := strconv.Itoa(d.sessionN), rand.Text()
	if d.sessions == nil {
		d.sessions = map[string]string{}
	}
	d.sessions[token] = id
	uri := sessionsURI + "/" + id
	return jsonAnswer(http.StatusCreated, sessionDocument(uri, id, name)).with("X-Auth-Token", token).with("Location", uri)
}

func sessionDocument(uri, id, user string) object {
	return object{"@odata.id": uri, "@odata.type": "#Session.v1_5_0.Session", "Id": id, "Name": "Session", "UserName": user}
}

func sessionResource(id string) *resource {
	uri := sessionsURI + "/" + id
	token := func(d *Device) (string, bool) {
		for t, own := range d.sessions {
			if own == id {
				return t, true
			}
		}
		return "", false
	}
	return &resource{
		live: func(d *Device, _ time.Time) object {
			if _, ok := token(d); !ok {
				return object{statusMember: http.StatusNotFound, "@odata.id": uri}
			}
			return sessionDocument(uri, id, d.cfg.Username)
		},
		remove: func(d *Device, _ time.Time) answer {
			t, ok := token(d)
			if !ok {
				return notFound(uri)
			}
			delete(d.sessions, t)
			return noContent()
		},
	}
}

// loggedIn reports whether a token belongs to a session.
func (d *Device) loggedIn(token string) bool {
	if token == "" {
		return false
	}
	d.lock()
	defer d.mu.Unlock()
	_, ok := d.sessions[token]
	return ok
}

// Sessions returns how many sessions are open.
func (d *Device) Sessions() int {
	d.lock()
	defer d.mu.Unlock()
	return len(d.sessions)
}

// DropSessions ends all sessions, as when their tokens expire.
func (d *Device) DropSessions() {
	d.lock()
	defer d.mu.Unlock()
	d.sessions = nil
}
