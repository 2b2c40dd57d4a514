// SPDX-License-Identifier: Apache-2.0

package ironic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/rackbus/rackbus/pkg/diagnostics"
)

// Collectors read a node in Ironic. The first one is required and tells whether the
// node may be examined; the other reads what says more about it.
func Collectors(o Options, t Target) []diagnostics.Collector {
	r := &reader{options: o.withDefaults(), target: t}
	return []diagnostics.Collector{state{r}, details{r}}
}

// reader is the API as the collectors of one run share it. They run one after the
// other.
type reader struct {
	options Options
	target  Target
	client  *client
}

// node reads the node, now.
func (r *reader) node(ctx context.Context) (*client, node, json.RawMessage, error) {
	if r.client == nil {
		c, err := open(ctx, r.options)
		if err != nil {
			return nil, node{}, nil, err
		}
		r.client = c
	}
	path := "nodes/" + url.PathEscape(r.options.nameOf(r.target))
	raw, err := r.client.get(ctx, path)
	if err != nil {
		if absent(err) {
			err = fmt.Errorf("ironic knows no node %q: %w", r.options.nameOf(r.target), err)
		}
		return nil, node{}, nil, err
	}
	n, err := decodeNode(path, raw)
	if err == nil {
		err = n.check(r.target)
	}
	return r.client, n, raw, err
}

// state collects the node and its history.
type state struct{ r *reader }

func (state) Name() string { return "ironic" }

func (state) Required() bool { return true }

// Precondition refuses to examine a node with which Ironic is doing something.
func (s state) Precondition(ctx context.Context) error {
	_, n, _, err := s.r.node(ctx)
	if err != nil {
		return err
	}
	if !n.resting() {
		return &diagnostics.StateError{State: n.ProvisionState, Wanted: restingStates()}
	}
	return nil
}

// Fingerprint has the states of the node and what it is used for.
func (s state) Fingerprint(ctx context.Context) (diagnostics.Fingerprint, error) {
	_, n, _, err := s.r.node(ctx)
	if err != nil {
		return nil, err
	}
	out := diagnostics.Fingerprint{"uuid": n.UUID, "driver": n.Driver, "provision_state": n.ProvisionState}
	for key, value := range map[string]string{
		"target_provision_state": n.TargetProvisionState, "power_state": n.PowerState,
		"target_power_state": n.TargetPowerState, "instance_uuid": n.InstanceUUID,
	} {
		if value != "" {
			out[key] = value
		}
	}
	return out, nil
}

// Collect keeps the node, its history, and the problems in their words.
func (s state) Collect(ctx context.Context, into diagnostics.Sink) error {
	c, n, raw, err := s.r.node(ctx)
	if err != nil {
		return err
	}
	if err := keep(into, "ironic/node.json", raw); err != nil {
		return err
	}
	history, err := s.history(ctx, c, &n, into)
	found := struct {
		Problems []problem `json:"problems"`
	}{problemsOf(&n, history)}
	return errors.Join(err, into.JSON("ironic/problems.json", found))
}

// history reads all events: Ironic keeps 300 of a node, and shows 1,000 at a time.
func (s state) history(ctx context.Context, c *client, n *node, into diagnostics.Sink) ([]event, error) {
	if c.minor < minorHistory {
		return nil, nil
	}
	path := "nodes/" + url.PathEscape(n.UUID) + "/history?detail=True"
	raw, err := c.get(ctx, path)
	if absent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var doc struct {
		History []event `json:"history"`
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, &Error{Method: http.MethodGet, Path: "v1/" + path, Message: "the answer is no history"}
	}
	return doc.History, keep(into, "ironic/history.json", raw)
}

// keep adds a document with its secrets hidden.
func keep(into diagnostics.Sink, name string, raw json.RawMessage) error {
	doc, err := mask(raw)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return into.JSON(name, doc)
}

// details collects what says more about a node.
type details struct{ r *reader }

func (details) Name() string { return "ironic_details" }

func (details) Required() bool { return false }

// Collect keeps what there is. What this Ironic is too old for, and what the node
// does not have, is left out.
func (d details) Collect(ctx context.Context, into diagnostics.Sink) error {
	c, n, _, err := d.r.node(ctx)
	if err != nil {
		return err
	}
	at := "nodes/" + url.PathEscape(n.UUID)
	var failed []error
	for _, part := range []struct {
		file, path string
		since      int
	}{
		{"ironic/traits.json", at + "/traits", minorTraits},
		{"ironic/ports.json", at + "/ports/detail", 0},
		{"ironic/allocation.json", at + "/allocation", minorAllocation},
		{"ironic/inventory.json", at + "/inventory", minorInventory},
		{"ironic/validate.json", at + "/validate", 0},
		{"ironic/conductors.json", "conductors?detail=True", minorConductors},
	} {
		if c.minor < part.since {
			continue
		}
		raw, err := c.get(ctx, part.path)
		switch {
		case err == nil:
			failed = append(failed, keep(into, part.file, raw))
		case ctx.Err() != nil:
			return err
		case !absent(err):
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}
