// SPDX-License-Identifier: Apache-2.0

package nvswitch

import (
	"encoding/json"
	"net/http"
	"strings"
)

func createRevision(s *Switch, _ *call) reply {
	r := s.newRevision()
	switch s.knobs.RevisionForm {
	case RevisionString:
		return ok(r.id)
	case RevisionNumber:
		return ok(json.Number(r.id))
	default:
		return ok(s.show(r))
	}
}

// show is a revision as its readers see it.
func (s *Switch) show(r *revision) object {
	doc := object{"state": r.state}
	if r.shows > 0 {
		doc["state"] = "apply"
	} else if r.issue != "" {
		doc["transition"] = object{"issue": object{"0": object{"code": "config", "data": object{"message": r.issue}}}}
	}
	if s.knobs.RevisionForm == RevisionFlat {
		doc["revision-id"] = r.id
		return doc
	}
	return object{r.id: doc}
}

func readRevision(s *Switch, c *call) reply {
	r := s.revisions[c.r.PathValue("id")]
	if r == nil {
		return notFound(c.path)
	}
	shown := s.show(r)
	if r.shows > 0 {
		r.shows--
	}
	return ok(shown)
}

func deleteRevision(s *Switch, c *call) reply {
	id := c.r.PathValue("id")
	if s.revisions[id] == nil {
		return notFound(c.path)
	}
	delete(s.revisions, id)
	return ok(object{})
}

// changeRevision is apply, or save of what is applied.
func changeRevision(s *Switch, c *call) reply {
	id := c.r.PathValue("id")
	r := s.revisions[id]
	if r == nil && id != "applied" {
		return notFound(c.path)
	}
	switch c.body["state"] {
	case "save":
		if r != nil && !strings.HasPrefix(r.state, "applied") && r.issue != noDiff {
			return refusal(http.StatusBadRequest, "The revision has not been applied.")
		}
		s.save()
		return ok(object{"state": "save"})
	case "apply":
		if r == nil || r.state != "pending" {
			return refusal(http.StatusConflict, "The revision is not pending.")
		}
		if prompt, _ := c.body["auto-prompt"].(object); prompt["ays"] != "ays_yes" {
			r.state = "ays"
			return ok(s.show(r))
		}
		s.startApply(c.now, r)
		return ok(s.show(r))
	default:
		return refusal(http.StatusBadRequest, "The state is neither apply nor save.")
	}
}

// stagePatch records a merge patch of a resource in a revision.
func stagePatch(s *Switch, c *call) reply {
	return s.stage(c, edit{path: c.path, patch: c.body})
}

// stageRemoval records the removal of a resource in a revision.
func stageRemoval(s *Switch, c *call) reply {
	return s.stage(c, edit{path: c.path, remove: true})
}

func (s *Switch) stage(c *call, e edit) reply {
	r := s.revisions[c.r.URL.Query().Get("rev")]
	switch {
	case r == nil:
		return refusal(http.StatusNotFound, "There is no such revision.")
	case r.state != "pending":
		return refusal(http.StatusConflict, "The revision is not pending.")
	case !e.remove && e.patch == nil:
		return refusal(http.StatusBadRequest, "The patch is missing.")
	}
	r.edits = append(r.edits, e)
	return ok(e.patch)
}

// view is the configuration that a read with a rev parameter is about, false for an unknown revision.
func (s *Switch) view(c *call) (document, bool) {
	switch rev := c.r.URL.Query().Get("rev"); rev {
	case "", "operational", "applied":
		return s.running, true
	case "startup":
		return s.startup, true
	default:
		r := s.revisions[rev]
		if r == nil {
			return nil, false
		}
		return s.running.edited(r.edits), true
	}
}

// readConfig shows the configuration at the request's path.
func readConfig(s *Switch, c *call) reply {
	view, found := s.view(c)
	if !found {
		return refusal(http.StatusNotFound, "There is no such revision.")
	}
	return ok(view.object(c.path))
}
