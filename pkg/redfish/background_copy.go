// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// BackgroundCopyError says which background copies did not complete in time.
type BackgroundCopyError struct {
	// Incomplete maps chassis paths to the last status, Missing, or why it could
	// not be read.
	Incomplete map[string]string
}

// Error names them in order.
func (e *BackgroundCopyError) Error() string {
	var parts []string
	for _, path := range slices.Sorted(maps.Keys(e.Incomplete)) {
		parts = append(parts, path+"="+e.Incomplete[path])
	}
	return "background copy did not complete: " + clip(strings.Join(parts, ", "))
}

// WaitBackgroundCopy waits until every root of trust has copied its image to the
// spare flash: an update that overtakes the copy bricks the component. Trees in
// which no chassis tells a status pass at once. progress, when set, is told what
// is incomplete after each round.
func (c *Client) WaitBackgroundCopy(ctx context.Context, progress func(incomplete map[string]string)) error {
	const op = "wait for background copy"
	end := within(c.timing.BackgroundCopyLimit)
	var watched []string
	discovered := false
	for {
		var (
			incomplete map[string]string
			err        error
		)
		if !discovered {
			watched, incomplete, err = c.discoverCopies(ctx, op)
			discovered = err == nil
		} else {
			watched, incomplete, err = c.readCopies(ctx, op, watched)
		}
		if err != nil {
			if hopeless(ctx, err) {
				return err
			}
			incomplete = map[string]string{rootPath + "/Chassis": "QueryFailed: " + err.Error()}
		}
		if discovered && len(incomplete) == 0 {
			return nil
		}
		if progress != nil {
			progress(incomplete)
		}
		wait := pause(c.timing.BackgroundCopyInterval, err)
		if end.passedAfter(wait) {
			return &Error{Op: op, Code: CodeTimeout, cause: &BackgroundCopyError{Incomplete: incomplete}}
		}
		if err := sleep(ctx, op, wait); err != nil {
			return err
		}
	}
}

// discoverCopies reads every chassis. One that cannot be read spoils the round,
// since it might be the one that still copies.
func (c *Client) discoverCopies(ctx context.Context, op string) (watched []string, incomplete map[string]string, err error) {
	list, err := c.collection(ctx, op, rootPath+"/Chassis")
	if err != nil {
		return nil, nil, err
	}
	if !list.listed {
		return nil, nil, unreadable(op, "the chassis collection (it has no Members)", nil)
	}
	incomplete = map[string]string{}
	for _, path := range list.members {
		r, err := c.member(ctx, op, path)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", leaf(path), err)
		}
		if status := copyStatus(r); status != "" && !strings.EqualFold(status, "Completed") {
			watched = append(watched, path)
			incomplete[path] = status
		}
	}
	return watched, incomplete, nil
}

// readCopies reads only those that were incomplete.
func (c *Client) readCopies(ctx context.Context, op string, paths []string) (watched []string, incomplete map[string]string, err error) {
	incomplete = map[string]string{}
	for _, path := range paths {
		r, err := c.member(ctx, op, path)
		switch {
		case err != nil && hopeless(ctx, err):
			return paths, nil, err
		case err != nil:
			incomplete[path] = "QueryFailed: " + err.Error()
		case copyStatus(r) == "":
			incomplete[path] = "Missing"
		case !strings.EqualFold(copyStatus(r), "Completed"):
			incomplete[path] = copyStatus(r)
		default:
			continue
		}
		watched = append(watched, path)
	}
	return watched, incomplete, nil
}

func copyStatus(r *resource) string { return r.at("Oem", "Nvidia").text("BackgroundCopyStatus") }
