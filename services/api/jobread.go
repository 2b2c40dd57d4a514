// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"sync"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
)

// errNoJob says that there is no such job, or not any more.
var errNoJob = errors.New("no such job")

// readJob reads a job at the stream leader: a poller must never see a state go
// back. What cannot be an id is errNoJob like an unknown one.
func (s *Server) readJob(ctx context.Context, text string) (job.Record, bus.Revision, error) {
	id, err := job.ParseID(text)
	if err != nil {
		return job.Record{}, 0, errNoJob
	}
	var r job.Record
	var rev bus.Revision
	err = s.ride(ctx, func(ctx context.Context) (err error) {
		r, rev, err = s.opts.Conn.Record(ctx, id)
		return err
	})
	if errors.Is(err, bus.ErrNotFound) {
		return job.Record{}, 0, errNoJob
	}
	return r, rev, err
}

// childIDs returns the ids of all children of a job, in their order.
func childIDs(r *job.Record) []job.ID {
	ids := make([]job.ID, r.Total)
	for i := range ids {
		ids[i] = r.ID.Child(uint32(i) + 1)
	}
	return ids
}

// noJob gives errNoJob the status that callers get.
func noJob(err error, id string) error {
	if errors.Is(err, errNoJob) {
		return errorf(CodeNotFound, "job %s not found", id)
	}
	return err
}

// readAll reads the records of jobs of one family in order. A family whose
// retention ends meanwhile is errNoJob as a whole: nobody is shown half of it.
func (s *Server) readAll(ctx context.Context, ids []job.ID, rev bus.Revision) ([]job.Record, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	var found map[job.ID]job.Record
	err := s.ride(ctx, func(ctx context.Context) (err error) {
		found, err = s.opts.Conn.Records(ctx, ids, rev)
		return err
	})
	if err != nil {
		return nil, err
	}
	out := make([]job.Record, 0, len(found))
	for _, id := range ids {
		if r, ok := found[id]; ok {
			out = append(out, r)
			continue
		}
		s.log.WarnContext(ctx, "child job not stored any more", "job_id", id.String())
	}
	if len(out) == len(ids) {
		return out, nil
	}
	var gone bool
	err = s.ride(ctx, func(ctx context.Context) (err error) {
		gone, err = s.opts.Conn.Gone(ctx, ids[0])
		return err
	})
	if err != nil {
		return nil, err
	}
	if gone {
		return nil, errNoJob
	}
	return out, nil
}

// withResult fills in the result of a failed batch, which is made from its
// children when it is read. It keeps within maxBytes.
func (s *Server) withResult(ctx context.Context, r job.Record, rev bus.Revision, maxBytes int) (job.Record, error) {
	if r.Kind != job.KindParent || !r.State.Terminal() || r.State == job.StateCompleted || r.ResultJSON != "" {
		return r, nil
	}
	key := resultKey{r.ID, maxBytes}
	if text, ok := s.results.get(key); ok {
		r.ResultJSON = text
		return r, nil
	}
	var ids []job.ID
	for i := range r.Children.Select(func(st job.State) bool { return st.Terminal() && st != job.StateCompleted }) {
		ids = append(ids, r.ID.Child(i))
	}
	failed, err := s.readAll(ctx, ids, rev)
	if err != nil {
		return r, err
	}
	r.ResultJSON = job.FailedBatchResult(r, failed, maxBytes)
	s.results.put(key, r.ResultJSON)
	return r, nil
}

// resultsKept bounds the results of failed batches that are kept. They do not
// change any more, and pollers ask for the same few.
const resultsKept = 32

type resultKey struct {
	id       job.ID
	maxBytes int
}

// resultCache keeps the results of failed batches, the latest ones.
type resultCache struct {
	mu    sync.Mutex
	texts map[resultKey]string
	order []resultKey
}

func newResultCache() *resultCache { return &resultCache{texts: make(map[resultKey]string)} }

func (c *resultCache) get(k resultKey) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	text, ok := c.texts[k]
	return text, ok
}

func (c *resultCache) put(k resultKey, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.texts[k]; known {
		return
	}
	if len(c.order) >= resultsKept {
		delete(c.texts, c.order[0])
		c.order = c.order[1:]
	}
	c.texts[k] = text
	c.order = append(c.order, k)
}

// resultCut stands for a result that had no room in the answer.
const resultCut = `{"result_cut":true}`

// fitResults cuts results, the later ones first, until the answer keeps within
// budget. sizes are the sizes of everything but the results; it returns how many
// jobs fit even without any result, and whether anything was cut.
func fitResults(results []*string, sizes []int, budget int) (fit int, cut bool) {
	left := budget
	for fit < len(sizes) && left >= sizes[fit]+len(resultCut) {
		left -= sizes[fit] + len(resultCut)
		fit++
	}
	for _, text := range results[:fit] {
		if more := len(*text) - len(resultCut); more > left {
			*text, cut = resultCut, true
		} else {
			left -= max(more, 0)
		}
	}
	return fit, cut || fit < len(sizes)
}
