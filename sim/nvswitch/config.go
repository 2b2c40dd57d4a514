// SPDX-License-Identifier: Apache-2.0

package nvswitch

import (
	"encoding/base64"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"
)

// Paths of the configuration tree.
const (
	apiPath     = "/system/api"
	apiMTLS     = apiPath + "/mtls"
	gnmiPath    = "/system/gnmi-server"
	gnmiMTLS    = gnmiPath + "/mtls"
	usersPath   = "/system/aaa/user"
	clusterPath = "/cluster"
	asicPath    = "/platform/firmware/ASIC"
)

const (
	stateEnabled  = "enabled"
	stateDisabled = "disabled"
)

// noDiff is the text by which clients know that an apply had nothing to do.
const noDiff = "config apply executed with no config diff"

// factoryConfig is the configuration of a switch with one user.
func factoryConfig(user, password string) document {
	return document{
		"system": object{
			"api":         object{"certificate": "self-signed", "mtls": object{}},
			"gnmi-server": object{"state": stateDisabled, "mtls": object{}},
			"aaa":         object{"user": object{user: object{"password": encodePassword(password)}}},
		},
		"cluster":  object{"state": stateDisabled},
		"platform": object{"firmware": object{"ASIC": object{"auto-update": "enabled", "fw-source": "default"}}},
	}
}

func encodePassword(password string) string {
	return base64.StdEncoding.EncodeToString([]byte(password))
}

// password returns a user's password in the running configuration.
func (s *Switch) password(user string) (string, bool) {
	raw, err := base64.StdEncoding.DecodeString(s.running.text(usersPath+"/"+user, "password"))
	if err != nil || len(raw) == 0 {
		return "", false
	}
	return string(raw), true
}

// setPassword changes a password beside NVUE, as a login shell does: it is in force and saved.
func (s *Switch) setPassword(user, password string) {
	change := edit{path: usersPath + "/" + user, patch: object{"password": encodePassword(password)}}
	s.running.apply(change)
	s.startup.apply(change)
}

// revision is a set of changes on their way into the running configuration.
type revision struct {
	id    string
	edits []edit
	state string
	issue string
	// shows is how many reads still show "apply".
	shows int
}

func (s *Switch) newRevision() *revision {
	s.serials++
	r := &revision{id: strconv.Itoa(s.serials), state: "pending"}
	s.revisions[r.id] = r
	return r
}

// startApply begins to apply a revision.
func (s *Switch) startApply(now time.Time, r *revision) {
	rule, faulty := s.takeRevision(pathsOf(r.edits))
	r.state, r.issue = "apply", ""
	if faulty {
		r.state, r.issue = rule.State, rule.Issue
		if !rule.Effect {
			return
		}
	}
	s.after(now, s.timing.Apply, func(now time.Time) {
		state, issue := s.commit(now, r.edits)
		if faulty {
			return
		}
		r.state, r.issue, r.shows = state, issue, s.knobs.ApplyPolls
		if state == "applied" && s.knobs.RevisionDone != "" {
			r.state = s.knobs.RevisionDone
			if s.knobs.RevisionDone == "applied_and_saved" {
				s.save()
			}
		}
	})
}

// commit makes changes the running configuration and returns the state of their revision.
func (s *Switch) commit(now time.Time, edits []edit) (state, issue string) {
	next := s.running.edited(edits)
	if reflect.DeepEqual(normal(next), normal(s.running)) {
		return "failed", noDiff
	}
	if issue := s.invalid(next); issue != "" {
		return "invalid", issue
	}
	last := s.running
	s.running = next
	s.changed(now, last)
	return "applied", ""
}

// normal drops what means nothing: empty objects.
func normal(d document) object {
	var strip func(o object) object
	strip = func(o object) object {
		out := object{}
		for key, value := range o {
			inner, ok := value.(object)
			if !ok {
				out[key] = value
				continue
			}
			// An empty object under "server" is a server.
			if stripped := strip(inner); len(stripped) > 0 || key != "mtls" && key != "server" && key != "node" && key != "primary" && key != "secondary" {
				out[key] = stripped
			}
		}
		return out
	}
	return strip(object(d))
}

// invalid returns why a configuration cannot be applied, "" when it can.
func (s *Switch) invalid(next document) string {
	if next.text(clusterPath, "state") == stateDisabled && len(serversOf(next, "primary"))+len(serversOf(next, "secondary")) > 0 {
		return "the cluster cannot be disabled while node servers are configured"
	}
	for _, path := range []string{apiPath, gnmiPath} {
		if id := next.text(path, "certificate"); id != "" && id != "self-signed" && s.entities[id] == nil {
			return fmt.Sprintf("certificate %q is not installed", id)
		}
		if id := next.text(path+"/mtls", "ca-certificate"); id != "" && s.cas[id] == nil {
			return fmt.Sprintf("ca-certificate %q is not installed", id)
		}
	}
	return ""
}

// changed does what follows from a new running configuration.
func (s *Switch) changed(now time.Time, last document) {
	if !reflect.DeepEqual(normal(document{"api": last.at(apiPath)}), normal(document{"api": s.running.at(apiPath)})) {
		s.cuts[serviceNVUE] = true
	}
	if !reflect.DeepEqual(normal(document{"gnmi": last.at(gnmiPath)}), normal(document{"gnmi": s.running.at(gnmiPath)})) {
		s.cuts[serviceGNMI] = true
	}
	if before, after := last.text(clusterPath, "state"), s.running.text(clusterPath, "state"); before != after {
		s.clusterChanged(now, after == stateEnabled)
	}
	for user := range s.running.object(usersPath) {
		if last.text(usersPath+"/"+user, "password") != s.running.text(usersPath+"/"+user, "password") {
			delete(s.expired, user)
		}
	}
	// Doors follow the agenda's timer.
	s.after(now, 0, func(time.Time) {})
}

func (s *Switch) save() { s.startup = cloneDocument(s.running) }

func serversOf(d document, kind string) object { return d.object("/cluster/node/" + kind + "/server") }

// Config returns the text at a path of the running configuration, for example "/cluster/state".
func (s *Switch) Config(path string) string {
	s.lock()
	defer s.mu.Unlock()
	text, _ := s.running.at(path).(string)
	return text
}

// SavedConfig returns the same of the configuration that the next boot loads.
func (s *Switch) SavedConfig(path string) string {
	s.lock()
	defer s.mu.Unlock()
	text, _ := s.startup.at(path).(string)
	return text
}

// Servers returns the addresses of a node interface, "primary" or "secondary", sorted.
func (s *Switch) Servers(kind string) []string {
	s.lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(serversOf(s.running, kind)))
}

// SetConfig merges members into the object at a path of the running and the saved configuration, with all effects.
func (s *Switch) SetConfig(path string, members map[string]any) {
	now := s.lock()
	last := cloneDocument(s.running)
	change := edit{path: path, patch: members}
	s.running.apply(change)
	s.startup.apply(change)
	s.changed(now, last)
	s.mu.Unlock()
	s.Reconcile()
}

// Revisions returns how many revisions exist, applied ones included.
func (s *Switch) Revisions() int {
	s.lock()
	defer s.mu.Unlock()
	return len(s.revisions)
}
