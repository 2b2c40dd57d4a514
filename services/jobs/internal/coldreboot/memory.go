// SPDX-License-Identifier: Apache-2.0

package coldreboot

import (
	"context"
	"encoding/json"
	"sync"
	"time"
)

// memory is what survives this process: it is kept in the job's checkpoint.
type memory struct {
	mu     sync.Mutex
	Stages map[string]*stageMemory `json:"stages"`
}

// stageMemory is what is kept of one stage.
type stageMemory struct {
	// EnteredAt is when its first owner began it. Waits count from there.
	EnteredAt time.Time `json:"entered_at,omitzero"`
	// Nodes has the power actions that were announced, by node id.
	Nodes map[string]*nodeMemory `json:"nodes,omitempty"`
	// Details are what the result shows of the stage.
	Details json.RawMessage `json:"details,omitempty"`
}

// nodeMemory is a power action on one node.
type nodeMemory struct {
	// Until is the last moment at which an agent may act on the request; zero when
	// the device has certainly not taken it.
	Until time.Time `json:"until"`
	// Done says that the device took it.
	Done bool `json:"done,omitempty"`
	// Tries counts the requests.
	Tries int `json:"tries"`
}

func (m *memory) load(t task) error {
	if _, err := t.Load(m); err != nil {
		return err
	}
	if m.Stages == nil {
		m.Stages = make(map[string]*stageMemory)
	}
	return nil
}

// stage returns what is kept of a stage. It needs the lock.
func (m *memory) stage(name string) *stageMemory {
	if m.Stages[name] == nil {
		m.Stages[name] = &stageMemory{Nodes: make(map[string]*nodeMemory)}
	}
	if m.Stages[name].Nodes == nil {
		m.Stages[name].Nodes = make(map[string]*nodeMemory)
	}
	return m.Stages[name]
}

// touched reports whether a device may have taken a power action of the stage.
func (m *memory) touched(stage string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range m.stage(stage).Nodes {
		if n.Done || !n.Until.IsZero() {
			return true
		}
	}
	return false
}

// node returns a copy of what is kept of a power action, and false when none was
// announced.
func (m *memory) node(stage, id string) (nodeMemory, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.stage(stage).Nodes[id]
	if n == nil {
		return nodeMemory{}, false
	}
	return *n, true
}

// save changes what is kept and writes it. The lock is held meanwhile, so that no
// older picture is written behind a newer one.
func (m *memory) save(ctx context.Context, t task, change func()) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
	return t.Save(ctx, m)
}

// keep changes what is kept; the next write of the checkpoint has it.
func (m *memory) keep(t task, change func()) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
	return t.Set(m)
}

// enter returns when the stage was begun, by this owner or an earlier one.
func (m *memory) enter(ctx context.Context, t task, stage string) (time.Time, error) {
	m.mu.Lock()
	at := m.stage(stage).EnteredAt
	m.mu.Unlock()
	if !at.IsZero() {
		return at, nil
	}
	at = time.Now().UTC()
	return at, m.save(ctx, t, func() { m.stage(stage).EnteredAt = at })
}

// details keeps what the result shows of a stage.
func (m *memory) details(t task, stage string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return m.keep(t, func() { m.stage(stage).Details = data })
}
