// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"
)

// maxPages ends the walk of a collection whose nextLinks go round in circles.
const maxPages = 64

// resource is one document read from the device.
type resource struct {
	document
	path string
	etag string
}

func (c *Client) get(ctx context.Context, op, path string) (*resource, error) {
	return c.getWithin(ctx, op, path, c.timing.Request)
}

func (c *Client) getWithin(ctx context.Context, op, path string, limit time.Duration) (*resource, error) {
	a, err := c.send(ctx, request{op: op, method: http.MethodGet, path: path, limit: limit})
	if err != nil {
		return nil, err
	}
	d, err := a.document()
	if err != nil {
		return nil, &Error{Op: op, Method: http.MethodGet, Path: path, Status: a.status, Code: CodeInvalidResponse,
			Sent: true, reason: "the answer is not a JSON object", cause: err}
	}
	etag := a.header.Get("ETag")
	if etag == "" {
		etag = d.text("@odata.etag")
	}
	return &resource{document: d, path: a.path, etag: etag}, nil
}

// follow gets a URI found in a resource.
func (c *Client) follow(ctx context.Context, op, ref string, limit time.Duration) (*resource, error) {
	path, err := c.checkRef(op, ref)
	if err != nil {
		return nil, err
	}
	return c.getWithin(ctx, op, path, limit)
}

func (c *Client) checkRef(op, ref string) (string, error) {
	path, err := devicePath(ref)
	if err != nil {
		c.log.Warn("link outside the device refused", slog.String("op", op), slog.String("link", clip(ref)))
		return "", &Error{Op: op, Code: CodeInvalidArgument, cause: err}
	}
	return path, nil
}

// collection is a collection with the checked paths of its members. Members that
// lead off the device are left out.
type collection struct {
	*resource
	members []string
	listed  bool
}

func (c *Client) collection(ctx context.Context, op, path string) (*collection, error) {
	first, err := c.getWithin(ctx, op, path, c.timing.Collection)
	if err != nil {
		return nil, err
	}
	out := &collection{resource: first, listed: first.has("Members")}
	page := first
	for range maxPages {
		for _, ref := range page.links("Members") {
			if member, err := c.checkRef(op, ref); err == nil {
				out.members = append(out.members, member)
			}
		}
		next := page.link("Members@odata.nextLink")
		if next == "" {
			return out, nil
		}
		if page, err = c.follow(ctx, op, next, c.timing.Collection); err != nil {
			return nil, err
		}
	}
	return nil, fault(op, CodeInvalidResponse, "the pages of %s do not end", path)
}

// member reads a collection member.
func (c *Client) member(ctx context.Context, op, path string) (*resource, error) {
	return c.getWithin(ctx, op, path, c.timing.Collection)
}

// byID finds a member of a root collection, for example Systems/System_0: at its
// usual place first, then by walking the collection that the root names.
func (c *Client) byID(ctx context.Context, op, name, id string) (*resource, error) {
	usual := rootPath + "/" + name
	direct, firstErr := c.get(ctx, op, usual+"/"+id)
	if firstErr == nil && is(direct, id) {
		return direct, nil
	}
	if firstErr != nil && CodeOf(firstErr) != CodeNotFound {
		// Walking would only meet the same trouble again, on more requests.
		return nil, firstErr
	}
	root, err := c.get(ctx, op, rootPath)
	if err != nil {
		return nil, first(firstErr, err)
	}
	ref := root.link(name)
	if ref == "" {
		ref = usual
	}
	path, err := c.checkRef(op, ref)
	if err != nil {
		return nil, err
	}
	list, err := c.collection(ctx, op, path)
	if err != nil {
		return nil, first(firstErr, err)
	}
	for _, member := range list.members {
		r, err := c.member(ctx, op, member)
		if err == nil && is(r, id) {
			return r, nil
		}
	}
	return nil, first(firstErr, fault(op, CodeNotFound, "%s %s not found", name, id))
}

func is(r *resource, id string) bool {
	return r.text("Id") == id || leaf(r.text("@odata.id")) == id
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// patch changes a resource. The ETag is sent when the device gave one, "*" when
// not; when that form is refused, the other one is tried once: a weak tag without
// its prefix, else none at all.
func (c *Client) patch(ctx context.Context, op string, r *resource, change any) error {
	b, err := jsonBody(change)
	if err != nil {
		return &Error{Op: op, Code: CodeInvalidArgument, cause: err}
	}
	match, other := "*", ""
	if r.etag != "" && r.etag != `""` && r.etag != `W/""` {
		match = r.etag
		if len(match) > 2 && match[:2] == "W/" {
			other = match[2:]
		}
	}
	err = c.patchWith(ctx, op, r.path, b, match)
	if s := statusOf(err); s == http.StatusPreconditionFailed || s == http.StatusPreconditionRequired {
		err = c.patchWith(ctx, op, r.path, b, other)
	}
	// The device tells that the value is in force already.
	if e, ok := asError(err); ok && e.Status == http.StatusBadRequest && messageName(e.MessageID) == "PatchValueAlreadyExists" {
		return nil
	}
	return err
}

func (c *Client) patchWith(ctx context.Context, op, path string, b *body, match string) error {
	header := http.Header{}
	if match != "" {
		header.Set("If-Match", match)
	}
	_, err := c.send(ctx, request{op: op, method: http.MethodPatch, path: path, body: b, header: header})
	return err
}

func statusOf(err error) int {
	if e, ok := asError(err); ok {
		return e.Status
	}
	return 0
}

func unreadable(op, what string, err error) error {
	return &Error{Op: op, Code: CodeInvalidResponse, reason: fmt.Sprintf("%s could not be read", what), cause: err}
}
