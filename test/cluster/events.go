// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rackbus/rackbus/pkg/job"
)

// publicStream holds the public job events.
const publicStream = "RACKBUS_EVENTS"

// Event is a public job event as other systems see it.
type Event struct {
	// ID is the CloudEvents id.
	ID    string
	JobID string `json:"job_id"`
	From  string `json:"from"`
	State string `json:"state"`
	N     uint64 `json:"n"`
}

// PublicEvents reads the public stream from its beginning.
func (c *Cluster) PublicEvents(ctx context.Context) ([]Event, error) {
	nc, err := c.Bus()
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	stored, err := ReadStream(ctx, nc, publicStream, jetstream.DeliverAllPolicy)
	if err != nil {
		return nil, err
	}
	out := make([]Event, len(stored))
	for i, m := range stored {
		if err := json.Unmarshal(m.Data, &out[i]); err != nil {
			return nil, fmt.Errorf("read event %s: %w", m.Subject, err)
		}
		out[i].ID = m.Header.Get("ce-id")
	}
	return out, nil
}

// JudgeEvents lists what is wrong with the events of jobs that have ended: each change of a job is there once, in
// order, from queued to the state of the record.
func JudgeEvents(events []Event, records map[job.ID]job.Record) []string {
	var out []string
	bad := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	seen := map[string][]Event{}
	for _, e := range events {
		seen[e.JobID] = append(seen[e.JobID], e)
	}
	for id, r := range records {
		story := seen[id.String()]
		if len(story) == 0 {
			bad("job %s is %s, and no event tells of it", id, r.State)
			continue
		}
		from := ""
		for i, e := range story {
			if e.N != uint64(i+1) || e.From != from {
				bad("job %s: event %d has number %d and comes from %q: %s", id, i+1, e.N, e.From, storyText(story))
				break
			}
			from = e.State
		}
		if from != r.State.String() {
			bad("job %s is %s, its events end with %s: %s", id, r.State, from, storyText(story))
		}
	}
	slices.Sort(out)
	return out
}

func storyText(story []Event) string {
	parts := make([]string, len(story))
	for i, e := range story {
		parts[i] = fmt.Sprintf("%d:%s", e.N, e.State)
	}
	return strings.Join(parts, " ")
}
