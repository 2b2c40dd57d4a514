// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"context"
	"net/http"
	"slices"
)

// actionInfo is what a resource says about one of its actions.
type actionInfo struct {
	document
	name   string
	target string
}

// action looks an action up. OEM actions stand one level deeper, sometimes under
// the vendor's name.
func (c *Client) action(op string, r *resource, name string) (*actionInfo, error) {
	actions := r.object("Actions")
	entry := actions.object(name)
	if entry == nil {
		oem := actions.object("Oem")
		entry = oem.object(name)
		for vendor := range oem {
			if entry == nil {
				entry = oem.object(vendor).object(name)
			}
		}
	}
	if entry == nil || entry.text("target") == "" {
		return nil, &Error{Op: op, Path: r.path, Code: CodeFailedPrecondition, reason: "the device offers no " + name + " action", cause: ErrNoAction}
	}
	target, err := c.checkRef(op, entry.text("target"))
	if err != nil {
		return nil, err
	}
	return &actionInfo{document: entry, name: name, target: target}, nil
}

// parameter is one entry of an ActionInfo resource.
type parameter struct {
	name      string
	fallback  string
	allowable []string
}

// parameters reads the ActionInfo an action names. The list is empty when it
// names none or it cannot be read; only what no repetition cures is an error.
func (c *Client) parameters(ctx context.Context, op string, a *actionInfo) (list []parameter, err error) {
	ref := a.link("@Redfish.ActionInfo")
	if ref == "" {
		return nil, nil
	}
	info, err := c.follow(ctx, op, ref, c.timing.Request)
	if err != nil {
		if hopeless(ctx, err) {
			return nil, err
		}
		return nil, nil
	}
	for _, raw := range info.list("Parameters") {
		d, err := parseDocument(raw)
		if err != nil || d.text("Name") == "" {
			continue
		}
		list = append(list, parameter{name: d.text("Name"), fallback: d.text("DefaultValue"), allowable: d.texts("AllowableValues")})
	}
	return list, nil
}

// allowed gives the values a parameter may take: named in place, else in the
// ActionInfo. Empty means that the device does not say.
func (c *Client) allowed(ctx context.Context, op string, a *actionInfo, name string) ([]string, error) {
	if values := a.texts(name + "@Redfish.AllowableValues"); len(values) > 0 {
		return values, nil
	}
	list, err := c.parameters(ctx, op, a)
	for _, p := range list {
		if p.name == name {
			return p.allowable, nil
		}
	}
	return nil, err
}

// choose picks the first wanted value that is allowed. When none is, the first
// wanted one is returned with ok false.
func choose(wanted, allowed []string) (value string, ok bool) {
	for _, w := range wanted {
		if slices.Contains(allowed, w) {
			return w, true
		}
	}
	return wanted[0], len(allowed) == 0
}

// post calls an action with a body of parameters.
func (c *Client) post(ctx context.Context, op, target string, params map[string]string) error {
	if params == nil {
		params = map[string]string{}
	}
	b, err := jsonBody(params)
	if err != nil {
		return &Error{Op: op, Code: CodeInvalidArgument, cause: err}
	}
	_, err = c.send(ctx, request{op: op, method: http.MethodPost, path: target, body: b})
	return err
}

// postBare calls an action without parameters: "{}" first, since without a body
// some answer 415; nothing at all when "{}" is refused with 400.
func (c *Client) postBare(ctx context.Context, op, target string) error {
	err := c.post(ctx, op, target, nil)
	if statusOf(err) != http.StatusBadRequest {
		return err
	}
	if e, ok := asError(err); ok && e.Code == CodeFailedPrecondition {
		return err
	}
	_, err = c.send(ctx, request{op: op, method: http.MethodPost, path: target})
	return err
}
