// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
)

const opSurvey = "survey"

// Document is one resource as the device shows it, but for our own credentials,
// which are masked.
type Document struct {
	URI  string          `json:"uri"`
	Body json.RawMessage `json:"body"`
}

// Text gives a member of the document, "" when it is no text, number or boolean.
// The keys lead down to it.
func (d Document) Text(keys ...string) string {
	doc := splitDocument(d.Body)
	if len(keys) == 0 || doc == nil {
		return ""
	}
	return doc.at(keys[:len(keys)-1]...).text(keys[len(keys)-1])
}

// Link gives the URI a member refers to, "" when there is none. The keys lead
// down to it.
func (d Document) Link(keys ...string) string {
	doc := splitDocument(d.Body)
	if len(keys) == 0 || doc == nil {
		return ""
	}
	return doc.at(keys[:len(keys)-1]...).link(keys[len(keys)-1])
}

func splitDocument(raw []byte) document {
	d, err := parseDocument(raw)
	if err != nil {
		return nil
	}
	return d
}

// Document reads one resource. The URI may come from the device.
func (c *Client) Document(ctx context.Context, uri string) (Document, error) {
	path, err := c.checkRef(opSurvey, uri)
	if err != nil {
		return Document{}, err
	}
	a, err := c.send(ctx, request{op: opSurvey, method: http.MethodGet, path: path, limit: c.timing.Collection})
	if err != nil {
		return Document{}, err
	}
	if _, err := a.document(); err != nil {
		return Document{}, &Error{Op: opSurvey, Method: http.MethodGet, Path: path, Status: a.status,
			Code: CodeInvalidResponse, Sent: true, reason: "the answer is not a JSON object", cause: err}
	}
	body := c.scrubJSON(a.body)
	if !json.Valid(body) {
		// A password of digits may be part of a number.
		return Document{}, &Error{Op: opSurvey, Method: http.MethodGet, Path: path, Status: a.status,
			Code: CodeInvalidResponse, Sent: true, reason: "the answer holds our password outside of a text"}
	}
	return Document{URI: path, Body: body}, nil
}

// scrubJSON removes our own credentials from a document, also in the form in which
// they stand in texts.
func (c *Client) scrubJSON(body []byte) []byte {
	text := c.scrub(string(body))
	quoted, err := json.Marshal(c.endpoint.Password.Reveal())
	if err != nil || len(quoted) <= len(`""`) {
		return []byte(text)
	}
	return []byte(strings.ReplaceAll(text, string(quoted[1:len(quoted)-1]), mask))
}

// Members is what a collection has.
type Members struct {
	// URIs are all members, in the device's order.
	URIs []string
	// Documents are those that the collection itself shows whole, by URI.
	Documents map[string]json.RawMessage
	// Total is how many the device says there are, also when some were left out.
	Total int
}

// defaultMembersBytes is what the largest logs of trays have some thirty times.
const defaultMembersBytes = 32 << 20

// Members lists a collection over all its pages, but no more than limit members:
// the last ones, which in logs of OpenBMC are the newest. A page of a device may
// have 1,000 of them.
func (c *Client) Members(ctx context.Context, uri string, limit int) (Members, error) {
	out := Members{Documents: map[string]json.RawMessage{}}
	for range maxPages {
		page, err := c.Document(ctx, uri)
		if err != nil {
			return Members{}, err
		}
		doc := splitDocument(page.Body)
		if n, err := strconv.Atoi(doc.text("Members@odata.count")); err == nil {
			out.Total = max(out.Total, n)
		}
		for _, raw := range doc.list("Members") {
			refs := linksOf(raw)
			if len(refs) == 0 {
				continue
			}
			path, err := c.checkRef(opSurvey, refs[0])
			if err != nil {
				continue // a member that leads off the device is left out
			}
			out.URIs = append(out.URIs, path)
			if len(splitDocument(raw)) > 1 {
				out.Documents[path] = raw
			}
		}
		if out.trim(limit) > c.membersBytes {
			return Members{}, fault(opSurvey, CodeInvalidResponse, "the members of %s have more than %d bytes", uri, c.membersBytes)
		}
		if uri = doc.link("Members@odata.nextLink"); uri == "" {
			return out, nil
		}
	}
	return Members{}, fault(opSurvey, CodeInvalidResponse, "the pages of %s do not end", uri)
}

// trim leaves the last members, and returns how many bytes they have.
func (m *Members) trim(limit int) (bytes int) {
	m.Total = max(m.Total, len(m.URIs))
	if len(m.URIs) > limit {
		for _, uri := range m.URIs[:len(m.URIs)-limit] {
			delete(m.Documents, uri)
		}
		m.URIs = append([]string(nil), m.URIs[len(m.URIs)-limit:]...)
	}
	for _, body := range m.Documents {
		bytes += len(body)
	}
	return bytes
}

// Absent reports whether an error says that the device does not have a resource.
func Absent(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == CodeNotFound
}

// RootLink gives the URI of a collection of the service root, for example
// "Systems", "" when the device has none.
func (c *Client) RootLink(ctx context.Context, name string) (string, error) {
	root, err := c.Document(ctx, rootPath)
	if err != nil {
		return "", err
	}
	return root.Link(strings.Split(name, "/")...), nil
}
