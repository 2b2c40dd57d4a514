// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"sync"

	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nmxc"
)

// memory is what a reconciliation keeps in its checkpoint: how the fabric was
// before, and what was done since that must not be done twice or has to be undone.
type memory struct {
	mu sync.Mutex

	Before  map[string]before `json:"before,omitempty"`
	Primary string            `json:"primary,omitempty"`
	Extras  []nmxc.Entry      `json:"extras,omitempty"`
	// Changing says that a switch may have been changed: what comes after is
	// restored when it fails.
	Changing bool `json:"changing,omitempty"`
	// Exposure is the primary's gRPC port before.
	Exposure exposure `json:"exposure,omitzero"`
	// Entries of the static configuration that may have been changed, in their order.
	Entries []changedEntry `json:"entries,omitempty"`
	// RestartDue says that an entry was changed which counts after a restart only.
	RestartDue bool `json:"restart_due,omitempty"`
	SoftResets int  `json:"soft_resets,omitempty"`
	// Restarted says that the controller was restarted because it was not configured.
	Restarted bool `json:"restarted,omitempty"`
	// Restart is a restart of the controller that is under way.
	Restart *restartMemory `json:"restart,omitempty"`
	// Bound says that the controller's certificates may have been changed.
	Bound bool `json:"bound,omitempty"`
	// SDN is the outcome of the check of the bridges.
	SDN string `json:"sdn,omitempty"`
	// Found is the fabric as it was read back.
	Found document `json:"found,omitzero"`
	// Editing are the switches whose configuration is being changed: what was applied
	// may not be saved yet.
	Editing map[string]bool `json:"editing,omitempty"`
	// Failure is why the prior state is being restored.
	Failure *failure `json:"failure,omitempty"`
}

// before is a switch as it was found.
type before struct {
	Enabled bool `json:"enabled"`
	// Servers by interface; nil where they are not this job's business.
	Servers map[string][]string `json:"servers,omitempty"`
}

// exposure is whether a port was open.
type exposure struct {
	// Recorded is false until the step was reached, Known when it could be read.
	Recorded bool `json:"recorded,omitempty"`
	Known    bool `json:"known,omitempty"`
	Open     bool `json:"open,omitempty"`
}

// changedEntry is an entry with the value it had.
type changedEntry struct {
	File  string `json:"file"`
	Key   string `json:"key"`
	Old   string `json:"old"`
	Found bool   `json:"found"`
}

// failure is the end of a reconciliation.
type failure struct {
	Stage     string          `json:"stage"`
	Code      job.FailureCode `json:"code"`
	Message   string          `json:"message"`
	Cancelled bool            `json:"cancelled,omitempty"`
	Result    string          `json:"result,omitempty"`
	// Device is what the switch said, with which name or HTTP status.
	MessageID  string `json:"message_id,omitempty"`
	Device     string `json:"device,omitempty"`
	HTTPStatus int32  `json:"http_status,omitempty"`
}

// change changes what is kept and writes it.
func (m *memory) change(ctx context.Context, t task, change func()) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
	if err := t.Save(ctx, m); err != nil {
		return &passedError{err}
	}
	return nil
}

func (m *memory) enabledBefore(ids []string, enabled bool) []string {
	var out []string
	for _, id := range ids {
		if m.Before[id].Enabled == enabled {
			out = append(out, id)
		}
	}
	return out
}
