// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// compareRequests updates one tray through Rackbus and one directly, and compares
// what racksim has recorded: the times of both ways can be compared only while
// the plain client leaves nothing out.
func (u *update) compareRequests(ctx context.Context, s *settings, dir string, c *client) error {
	dir = filepath.Join(dir, "requests")
	image, err := writePackage(filepath.Join(dir, "firmware"))
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "requests.jsonl")
	r, err := startRack(ctx, s.bin, dir, 2, "--requests", file, "--task-duration", "1s")
	if err != nil {
		return err
	}
	// These trays are no nodes of the big batch.
	for _, n := range r.nodes {
		n.RackId = "rack-requests"
	}
	err = u.updateBoth(ctx, c, r, image)
	r.Stop() // which writes the file out
	if err != nil {
		return err
	}
	rackbus, err := requestsTo(file, r.nodes[0].GetNodeId())
	if err != nil {
		return err
	}
	direct, err := requestsTo(file, r.nodes[1].GetNodeId())
	if err != nil {
		return err
	}
	u.RequestsRackbus, u.RequestsDirect = len(rackbus), len(direct)
	if !slices.Equal(rackbus, direct) {
		return fmt.Errorf("the plain client does not send what the agent sends (see %s): %d and %d requests",
			file, len(direct), len(rackbus))
	}
	return nil
}

func (u *update) updateBoth(ctx context.Context, c *client, r *rack, image []byte) error {
	parent, err := start(ctx, c, r.nodes[:1])
	if err != nil {
		return err
	}
	d := newDirect(r.nodes)
	defer d.close()
	err = d.update(ctx, 1, image, newLimits())
	// The numbers of the big batch stay as they are.
	other := &update{}
	return errors.Join(err, other.follow(ctx, c, parent))
}

// requestsTo lists what a device was asked, in the order it was asked.
func requestsTo(file, device string) ([]string, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	type entry struct {
		Time   time.Time `json:"time"`
		Device string    `json:"device"`
		Method string    `json:"method"`
		Path   string    `json:"path"`
	}
	var entries []entry
	for lines := json.NewDecoder(bufio.NewReader(f)); lines.More(); {
		var e entry
		if err := lines.Decode(&e); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if e.Device == device {
			entries = append(entries, e)
		}
	}
	// The file has them in the order in which they ended.
	slices.SortStableFunc(entries, func(a, b entry) int { return a.Time.Compare(b.Time) })
	out := make([]string, len(entries))
	for i, e := range entries {
		out[i] = e.Method + " " + e.Path
	}
	return out, nil
}
