// SPDX-License-Identifier: Apache-2.0

package nvswitch

import (
	"strings"

	"github.com/rackbus/rackbus/sim/internal/mergepatch"
)

// object is a JSON object.
type object = map[string]any

// document is a configuration tree: objects with text at their leaves.
type document object

// at returns what is at a path such as "/system/api", nil for nothing.
func (d document) at(path string) any {
	var node any = object(d)
	for segment := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		inner, ok := node.(object)
		if !ok {
			return nil
		}
		node = inner[segment]
	}
	return node
}

// object returns a copy of the object at a path, empty where there is none.
func (d document) object(path string) object {
	found, ok := d.at(path).(object)
	if !ok {
		return object{}
	}
	return clone(found).(object)
}

// text returns the text of a member of the object at a path, "" without one.
func (d document) text(path, member string) string {
	text, _ := d.at(path + "/" + member).(string)
	return text
}

// edit is one change of a configuration.
type edit struct {
	path string
	// patch is merged in; remove takes the path out.
	patch  object
	remove bool
}

// apply makes the change.
func (d document) apply(e edit) {
	segments := strings.Split(strings.Trim(e.path, "/"), "/")
	if e.remove {
		parent, last := object(d), len(segments)-1
		for _, segment := range segments[:last] {
			inner, ok := parent[segment].(object)
			if !ok {
				return
			}
			parent = inner
		}
		delete(parent, segments[last])
		return
	}
	patch := clone(e.patch)
	for i := len(segments) - 1; i >= 0; i-- {
		patch = object{segments[i]: patch}
	}
	mergepatch.Apply(object(d), patch)
}

// edited returns a copy with changes made.
func (d document) edited(edits []edit) document {
	out := cloneDocument(d)
	for _, e := range edits {
		out.apply(e)
	}
	return out
}

func cloneDocument(d document) document { return document(clone(object(d)).(object)) }

func clone(v any) any {
	switch v := v.(type) {
	case object:
		out := make(object, len(v))
		for key, value := range v {
			out[key] = clone(value)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, value := range v {
			out[i] = clone(value)
		}
		return out
	default:
		return v
	}
}
