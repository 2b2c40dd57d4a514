// SPDX-License-Identifier: Apache-2.0

package diagnostics

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/rackbus/rackbus/pkg/job"
)

// Severity is how bad a finding is.
type Severity string

// The severities.
const (
	SeverityCritical Severity = "critical"
	SeverityWarning  Severity = "warning"
	SeverityInfo     Severity = "info"
)

// Evidence is what the documents of a bundle hold, decoded, by file name.
type Evidence map[string]any

// Rule is one row of the table of known faults.
type Rule struct {
	// Signature is the stable upper-case word for the pattern.
	Signature string
	Severity  Severity
	// Summary is one line for people; what the match tells is appended.
	Summary string
	// Advice is what to do about it.
	Advice string
	// Any lists what the rule is recognised by: one of them has to match.
	Any []Match
	// None lists what must not match. A rule without Any matches by that alone.
	None []Match
	// Whole makes the rule match only when no collector has failed: what was not
	// read might say otherwise.
	Whole bool
	// Fails is the failure code of a run in which one of FailsBy matches, whichever
	// row names the signature. Most rows have none: to find a fault is no failure.
	Fails   job.FailureCode
	FailsBy []Match
}

// Match looks for one element of the documents that meets all conditions.
type Match struct {
	// File is a pattern of file names as path.Match has it.
	File string
	// Each leads to the elements, for example "resources.*.body": member names, and
	// * for every element of an array or object. Empty is the document itself.
	Each string
	// Where are the conditions, which one element has to meet together.
	Where []Condition
	// Recent leads to the time of an element. Elements that are older than the period
	// of the run are left out; one without a readable time counts.
	Recent string
	// Begun leads to the time at which an element began: only those count that began
	// while the failed job worked.
	Begun string
	// DeviceClock says that these times are by the clock of the device.
	DeviceClock bool
	// Ours are keys of messages, as Message has them, that do not count while the
	// failed job itself switched the power of the node.
	Ours []string
	// Tell are the members that say more about the match, the first that is there.
	Tell []string
}

// Condition is about one member of an element, or several where the path has *: one
// of them has to hold.
type Condition struct {
	// Member is a path within the element; "" is the element itself.
	Member string
	// Test is what holds for the member.
	Test Test
	// Values are what Test compares with.
	Values []string
}

// Test compares a member with values.
type Test uint8

const (
	// Is holds when the text, number or boolean is one of the values, whatever the letter case.
	Is Test = iota
	// IsNot holds when there is a value, and it is none of these.
	IsNot
	// Message holds when the member is a MessageId whose key, the part behind the last
	// dot, is one of the values. Registry versions do not matter.
	Message
)

// Finding is what the rules say of a node.
type Finding struct {
	Signature string   `json:"failure_signature"`
	Severity  Severity `json:"severity"`
	Summary   string   `json:"summary"`
	Advice    string   `json:"advice"`
}

// maxSummary bounds a summary in bytes.
const maxSummary = 400

// SignatureUnclassified is given where no rule matches.
const SignatureUnclassified = "UNCLASSIFIED"

// Classify gives the finding of the first rule that matches. Entries of logs that are
// older than the period do not count. Whole says that no collector has failed.
func Classify(rules []Rule, e Evidence, period Period, whole bool) Finding {
	l := newLook(e, period)
	for i := range rules {
		r := &rules[i]
		told, ok := r.match(l, whole)
		if !ok {
			continue
		}
		summary := r.Summary
		if told != "" {
			summary += ": " + told
		}
		return Finding{r.Signature, r.Severity, clip(summary, maxSummary), r.Advice}
	}
	return Finding{
		Signature: SignatureUnclassified, Severity: SeverityWarning,
		Summary: "No known fault was recognised.",
		Advice:  "Read the bundle: begin with history.json and the logs around the time of the failure.",
	}
}

// FailureIn gives the failure code of a run by the first rule that has one and
// matches, and what to say about it.
func FailureIn(rules []Rule, e Evidence, period Period) (code job.FailureCode, message string, ok bool) {
	l := newLook(e, period)
	for i := range rules {
		r := &rules[i]
		for j := range r.FailsBy {
			told, found := r.FailsBy[j].find(l)
			if !found {
				continue
			}
			message := r.Summary
			if told != "" {
				message += ": " + strings.TrimRight(clip(told, maxSummary), ".")
			}
			return r.Fails, message + ". " + r.Advice, true
		}
	}
	return "", "", false
}

func (r *Rule) match(l *look, whole bool) (told string, ok bool) {
	if r.Whole && !whole {
		return "", false
	}
	for i := range r.None {
		if _, found := r.None[i].find(l); found {
			return "", false
		}
	}
	for i := range r.Any {
		if told, ok := r.Any[i].find(l); ok {
			return told, true
		}
	}
	return "", len(r.Any) == 0
}

// find looks through the files in the order of their names, so that the same
// evidence always gives the same answer.
func (m *Match) find(l *look) (told string, ok bool) {
	names := make([]string, 0, len(l.Evidence))
	for name := range l.Evidence {
		if matched, err := path.Match(m.File, name); err == nil && matched {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		for _, element := range walk(l.Evidence[name], m.Each) {
			if m.holds(l, element) {
				return m.told(element), true
			}
		}
	}
	return "", false
}

func (m *Match) holds(l *look, element any) bool {
	for i := range m.Where {
		if !m.Where[i].holds(element) {
			return false
		}
	}
	if m.Begun != "" && !l.during(walk(element, m.Begun), m.DeviceClock) {
		return false
	}
	if m.Recent == "" {
		return true
	}
	times := walk(element, m.Recent)
	if l.older(times, m.DeviceClock) {
		return false
	}
	expected := Condition{"MessageId", Message, m.Ours}
	return len(m.Ours) == 0 || !expected.holds(element) || !l.ours(times, m.DeviceClock)
}

func (m *Match) told(element any) string {
	for _, member := range m.Tell {
		for _, v := range walk(element, member) {
			if text, ok := scalar(v); ok && text != "" {
				return text
			}
		}
	}
	return ""
}

func (c *Condition) holds(element any) bool {
	for _, v := range walk(element, c.Member) {
		text, ok := scalar(v)
		if !ok {
			continue
		}
		if c.Test == Message {
			text = text[strings.LastIndexByte(text, '.')+1:]
		}
		in := slices.ContainsFunc(c.Values, func(value string) bool { return strings.EqualFold(value, text) })
		if in != (c.Test == IsNot) {
			return true
		}
	}
	return false
}

// walk gives all values at a path of a document.
func walk(v any, at string) []any {
	if v == nil {
		return nil
	}
	if at == "" {
		return []any{v}
	}
	step, rest, _ := strings.Cut(at, ".")
	var out []any
	switch v := v.(type) {
	case map[string]any:
		if step != "*" {
			return walk(v[step], rest)
		}
		for _, key := range sortedKeys(v) {
			out = append(out, walk(v[key], rest)...)
		}
	case []any:
		if step != "*" {
			return nil
		}
		for _, element := range v {
			out = append(out, walk(element, rest)...)
		}
	}
	return out
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

func scalar(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	case bool:
		return fmt.Sprint(v), true
	}
	return "", false
}
