// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rackbus/rackbus/test/cluster"
)

// span is a range of durations to draw from.
type span struct{ least, most time.Duration }

func (s span) draw(r *rand.Rand) time.Duration {
	return s.least + time.Duration(r.Int64N(int64(s.most-s.least)+1))
}

// habit is what may happen to the processes of a role.
type habit struct {
	// share of all actions.
	share int
	// down is how long a killed process stays away, frozen how long SIGSTOP lasts.
	down, frozen span
}

// chaos kills and freezes processes of a cluster at random.
type chaos struct {
	t      *testing.T
	c      *cluster.Cluster
	random *rand.Rand
	habits map[string]habit
	pause  span

	mu   sync.Mutex
	busy map[*cluster.Process]bool
	did  map[string]int
	wg   sync.WaitGroup
}

func newChaos(t *testing.T, c *cluster.Cluster, seed uint64, brokers int) *chaos {
	ch := &chaos{
		t: t, c: c, random: rand.New(rand.NewPCG(seed, 0)), pause: span{150 * time.Millisecond, 700 * time.Millisecond},
		busy: map[*cluster.Process]bool{}, did: map[string]int{},
		habits: map[string]habit{
			// Frozen agents outlive their sessions: their jobs pass to others while they believe to hold them.
			cluster.RoleComputeAgent:    {6, span{0, time.Second}, span{time.Second, 7 * time.Second}},
			cluster.RolePowerShelfAgent: {2, span{0, time.Second}, span{time.Second, 7 * time.Second}},
			cluster.RoleJobs:            {4, span{0, time.Second}, span{500 * time.Millisecond, 5 * time.Second}},
			cluster.RoleAPI:             {4, span{0, time.Second}, span{500 * time.Millisecond, 3 * time.Second}},
			cluster.RoleBroker:          {1, span{0, 300 * time.Millisecond}, span{200 * time.Millisecond, 1500 * time.Millisecond}},
		},
	}
	if brokers > 1 {
		// Leases are longer with three brokers, so jobs need more peace between two blows.
		ch.pause = span{400 * time.Millisecond, 1200 * time.Millisecond}
		ch.habits[cluster.RoleBroker] = habit{2, span{500 * time.Millisecond, 2 * time.Second}, span{500 * time.Millisecond, 3 * time.Second}}
	}
	return ch
}

// run acts until ctx ends, then brings everything back.
func (ch *chaos) run(ctx context.Context) {
	for ctx.Err() == nil {
		ch.act(ctx)
		select {
		case <-time.After(ch.pause.draw(ch.random)):
		case <-ctx.Done():
		}
	}
	ch.wg.Wait()
	for _, p := range ch.c.All() {
		if err := p.Start(); err != nil {
			ch.t.Errorf("restart %s: %v", p.Name, err)
		}
	}
}

// act hits one process that is not in the middle of something.
func (ch *chaos) act(ctx context.Context) {
	role := ch.role()
	replicas := ch.c.Processes(role)
	p := replicas[ch.random.IntN(len(replicas))]
	kill := ch.random.IntN(2) == 0
	h := ch.habits[role]
	length := h.frozen.draw(ch.random)
	if kill {
		length = h.down.draw(ch.random)
	}
	if !ch.begin(p) {
		return
	}
	ch.wg.Go(func() {
		defer ch.end(p)
		if kill {
			ch.kill(ctx, p, length)
			return
		}
		ch.freeze(ctx, p, length)
	})
}

func (ch *chaos) role() string {
	roles := slices.Sorted(maps.Keys(ch.habits))
	total := 0
	for _, role := range roles {
		total += ch.habits[role].share
	}
	at := ch.random.IntN(total)
	for _, role := range roles {
		if at -= ch.habits[role].share; at < 0 {
			return role
		}
	}
	return roles[0]
}

// begin reserves a process. One broker of a cluster is hit at a time: two of three are a loss of quorum.
func (ch *chaos) begin(p *cluster.Process) bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.busy[p] {
		return false
	}
	if p.Role == cluster.RoleBroker {
		for _, other := range ch.c.Processes(p.Role) {
			if ch.busy[other] {
				return false
			}
		}
	}
	ch.busy[p] = true
	return true
}

func (ch *chaos) end(p *cluster.Process) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	delete(ch.busy, p)
}

func (ch *chaos) count(what string, p *cluster.Process) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.did[what+" "+p.Role]++
}

func (ch *chaos) kill(ctx context.Context, p *cluster.Process, down time.Duration) {
	p.Kill()
	ch.count("kill", p)
	wait(ctx, down)
	if err := p.Start(); err != nil {
		ch.t.Errorf("restart %s: %v", p.Name, err)
		return
	}
	if p.Role == cluster.RoleBroker {
		// The next broker is hit when this one has caught up.
		ready, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		_ = p.WaitReady(ready) // the run may end meanwhile
	}
}

func (ch *chaos) freeze(ctx context.Context, p *cluster.Process, length time.Duration) {
	if err := p.Pause(); err != nil {
		return // it has ended by itself, which the run notices
	}
	ch.count("freeze", p)
	wait(ctx, length)
	if err := p.Resume(); err != nil {
		ch.t.Errorf("resume %s: %v", p.Name, err)
	}
}

// wait lets time pass: how long a process is away is drawn, there is no event for it.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// String tells what was done, for the report.
func (ch *chaos) String() string {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(ch.did)) {
		parts = append(parts, fmt.Sprintf("%s %d", what, ch.did[what]))
	}
	return strings.Join(parts, ", ")
}
