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

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/failpoint"
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
	// points are the places in the code at which a process may be hit, by what hits it.
	points map[string]string
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
	// mostHits is how often a point is passed, at most, before it acts.
	mostHits int

	mu   sync.Mutex
	busy map[*cluster.Process]bool
	// until is how long a process that was hit is left alone.
	until map[*cluster.Process]time.Time
	did   map[string]int
	wg    sync.WaitGroup
}

func newChaos(t *testing.T, c *cluster.Cluster, seed uint64, brokers int) *chaos {
	ch := &chaos{
		t: t, c: c, random: rand.New(rand.NewPCG(seed, 0)), pause: span{100 * time.Millisecond, 400 * time.Millisecond},
		busy: map[*cluster.Process]bool{}, until: map[*cluster.Process]time.Time{}, did: map[string]int{},
		habits: map[string]habit{
			// Frozen agents outlive their sessions: their jobs pass to others while they believe to hold them.
			cluster.RoleComputeAgent:    {8, agentPoints(), span{0, time.Second}, span{time.Second, 7 * time.Second}},
			cluster.RolePowerShelfAgent: {2, agentPoints(), span{0, time.Second}, span{time.Second, 7 * time.Second}},
			cluster.RoleJobs:            {4, jobsPoints(), span{0, time.Second}, span{500 * time.Millisecond, 5 * time.Second}},
			cluster.RoleAPI:             {4, nil, span{0, time.Second}, span{500 * time.Millisecond, 3 * time.Second}},
			cluster.RoleBroker:          {2, nil, span{0, 300 * time.Millisecond}, span{200 * time.Millisecond, 1500 * time.Millisecond}},
		},
	}
	for _, rack := range c.Racks {
		ch.mostHits += len(rack.Devices()) / 3
	}
	if brokers > 1 {
		// Leases are longer with three brokers, so jobs need more peace between two blows.
		ch.pause = span{400 * time.Millisecond, 1200 * time.Millisecond}
		ch.habits[cluster.RoleBroker] = habit{2, nil, span{500 * time.Millisecond, 2 * time.Second}, span{500 * time.Millisecond, 3 * time.Second}}
	}
	return ch
}

// agentPoints are those of the agent runtime. An agent frozen behind a recorded intent is about to change the device
// when it wakes up, and another owns the job by then; one killed behind a change leaves it unrecorded. A death behind
// the claim is left to TestPoints: whoever takes over many jobs would die again and again, and they would be given up.
func agentPoints() map[string]string {
	return map[string]string{
		agent.FailAfterIntent:       failpoint.ActionStop,
		agent.FailAfterDeviceChange: failpoint.ActionKill, agent.FailAfterDone: failpoint.ActionKill,
		agent.FailBeforeAck: failpoint.ActionKill,
	}
}

// jobsPoints are those of the fold and of the timers.
func jobsPoints() map[string]string {
	return map[string]string{
		"fold.before_commit": failpoint.ActionStop, "fold.after_commit": failpoint.ActionKill, "timer.before": failpoint.ActionKill,
	}
}

// arm makes the next life of a process end or freeze at one of its points, sooner or later.
func (ch *chaos) arm(p *cluster.Process) {
	points := ch.habits[p.Role].points
	if len(points) == 0 {
		return
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	p.Setenv()
	if ch.random.IntN(2) == 0 {
		return
	}
	names := slices.Sorted(maps.Keys(points))
	name := names[ch.random.IntN(len(names))]
	p.Setenv(fmt.Sprintf("%s=%s=%s@%d", failpoint.EnvVar, name, points[name], 1+ch.random.IntN(ch.mostHits)))
}

// run acts until ctx ends, then brings everything back.
func (ch *chaos) run(ctx context.Context) {
	for _, p := range ch.c.All() {
		if len(ch.habits[p.Role].points) > 0 {
			ch.arm(p)
			p.Kill()
			if err := p.Start(); err != nil {
				ch.t.Errorf("restart %s: %v", p.Name, err)
			}
		}
	}
	for ctx.Err() == nil {
		ch.tend(ctx)
		ch.act(ctx)
		select {
		case <-time.After(ch.draw(ch.pause)):
		case <-ctx.Done():
		}
	}
	ch.wg.Wait()
	for _, p := range ch.c.All() {
		// Without its point, a process lives on.
		if len(ch.habits[p.Role].points) > 0 {
			p.Kill()
			p.Setenv()
		}
		if err := p.Start(); err != nil {
			ch.t.Errorf("restart %s: %v", p.Name, err)
		}
	}
}

// tend takes care of processes that were hit at a point in their code.
func (ch *chaos) tend(ctx context.Context) {
	for _, p := range ch.c.All() {
		h := ch.habits[p.Role]
		frozen := p.Frozen()
		if !frozen && p.Alive() || !ch.begin(p) {
			continue
		}
		down, length := ch.draw(h.down), ch.draw(h.frozen)
		ch.wg.Go(func() {
			defer ch.end(p)
			if frozen {
				ch.count("freeze at a point:", p)
				ch.thaw(ctx, p, length)
				return
			}
			ch.count("kill at a point:", p)
			ch.revive(ctx, p, down)
		})
	}
}

// act hits one process that is not in the middle of something.
func (ch *chaos) act(ctx context.Context) {
	p, kill, length := ch.choose()
	if ch.resting(p) || !ch.begin(p) {
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

func (ch *chaos) draw(s span) time.Duration {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return s.draw(ch.random)
}

// choose draws who is hit, how, and for how long.
func (ch *chaos) choose() (p *cluster.Process, kill bool, length time.Duration) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	role := ch.role()
	replicas := ch.c.Processes(role)
	p = replicas[ch.random.IntN(len(replicas))]
	h := ch.habits[role]
	if ch.random.IntN(2) == 0 {
		return p, true, h.down.draw(ch.random)
	}
	return p, false, h.frozen.draw(ch.random)
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
	ch.until[p] = time.Now().Add(rest)
}

// rest is how long a process is left alone after it was hit. Where no owner lives long enough to get anywhere, jobs are
// given up, rightly, and nothing is learnt.
const rest = 1500 * time.Millisecond

func (ch *chaos) resting(p *cluster.Process) bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return time.Now().Before(ch.until[p])
}

func (ch *chaos) count(what string, p *cluster.Process) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.did[what+" "+p.Role]++
}

func (ch *chaos) kill(ctx context.Context, p *cluster.Process, down time.Duration) {
	p.Kill()
	ch.count("kill", p)
	ch.revive(ctx, p, down)
}

// revive starts a process that is dead.
func (ch *chaos) revive(ctx context.Context, p *cluster.Process, down time.Duration) {
	wait(ctx, down)
	ch.arm(p)
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
	ch.thaw(ctx, p, length)
}

// thaw lets a frozen process go on after a while.
func (ch *chaos) thaw(ctx context.Context, p *cluster.Process, length time.Duration) {
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
