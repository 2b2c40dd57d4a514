// SPDX-License-Identifier: Apache-2.0

package console

import (
	"context"
	"slices"
	"sync"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

const (
	// maxHistories is how many jobs' histories are kept: those whose pages are looked at.
	maxHistories = 32
	// maxHistory and maxHistoryBytes bound what is kept of one, the newest part.
	maxHistory      = 1000
	maxHistoryBytes = 2 << 20
)

// histories keeps what was read of jobs' histories, so that a page that is read again
// and again asks only for what is new. It is safe for concurrent use.
type histories struct {
	jobs rackbusv1.JobsClient

	mu     sync.Mutex
	known  map[string]*history
	recent []string // by their last use, the latest at the end
}

// history is the newest part of the history of one job, oldest first.
type history struct {
	turn    chan struct{} // held by whoever reads
	events  []*rackbusv1.JobHistoryEntry
	omitted int
	last    uint64
}

func newHistories(jobs rackbusv1.JobsClient) *histories {
	return &histories{jobs: jobs, known: map[string]*history{}}
}

// read returns the newest events of a job, oldest first, and how many earlier ones there
// are. It asks with the rights of ctx, also for what is known already.
func (h *histories) read(ctx context.Context, id string) (events []*rackbusv1.JobHistoryEntry, omitted int, err error) {
	return h.of(id).update(ctx, h.jobs, id)
}

// of returns the history of a job, and forgets the one that nobody has looked at for
// the longest time when there are too many.
func (h *histories) of(id string) *history {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := slices.Index(h.recent, id); i >= 0 {
		h.recent = slices.Delete(h.recent, i, i+1)
	} else {
		h.known[id] = &history{turn: make(chan struct{}, 1)}
	}
	h.recent = append(h.recent, id)
	if len(h.recent) > maxHistories {
		delete(h.known, h.recent[0])
		h.recent = slices.Delete(h.recent, 0, 1)
	}
	return h.known[id]
}

// update reads what is new. Whoever comes meanwhile waits, and then has less to read.
func (h *history) update(ctx context.Context, jobs rackbusv1.JobsClient, id string) ([]*rackbusv1.JobHistoryEntry, int, error) {
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-ctx.Done():
		return nil, 0, status.FromContextError(ctx.Err()).Err() //nolint:wrapcheck // the same
	}
	resp, err := jobs.GetJobEvents(ctx, &rackbusv1.GetJobEventsRequest{JobId: id, AfterSequence: h.last})
	if err != nil {
		return nil, 0, err //nolint:wrapcheck // people are shown its words
	}
	fresh := resp.GetEvents()
	if len(fresh) == 0 {
		return h.events, h.omitted, nil
	}
	if resp.GetOmitted() > 0 { // what is known does not lead up to what is new
		h.omitted += len(h.events) + int(resp.GetOmitted())
		h.events = nil
	}
	all := slices.Concat(h.events, fresh) // whoever has the old list keeps it as it is
	h.events = newest(all)
	h.omitted += len(all) - len(h.events)
	h.last = fresh[len(fresh)-1].GetSequence()
	return h.events, h.omitted, nil
}

// newest returns the end of a history that is to be kept.
func newest(events []*rackbusv1.JobHistoryEntry) []*rackbusv1.JobHistoryEntry {
	first, left := len(events), maxHistoryBytes
	for first > 0 && len(events)-first < maxHistory {
		if left -= proto.Size(events[first-1]); left < 0 && first < len(events) {
			break
		}
		first--
	}
	return slices.Clip(events[first:])
}
