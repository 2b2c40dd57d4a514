// SPDX-License-Identifier: Apache-2.0

package job

import (
	"strings"
	"time"
)

// Spec is what admission knows about a new job.
type Spec struct {
	ID   ID
	Type Type
	// Name is for people; one is derived when it is empty.
	Name string
	// NodeID stays empty for a parent.
	RackID string
	NodeID string
	Family string
	// CreatedAt is the time of admission.
	CreatedAt time.Time
	// Deadline is by when a worker must have taken the job.
	Deadline time.Time
	// Visible says that the id is handed to the caller.
	Visible bool
	// WaitsFor is the job that holds the node, when this one is parked behind it.
	WaitsFor ID
	// Cleanup are the directories to remove once the job has ended; see
	// CheckCleanup. Children have none: their directories are used by others.
	Cleanup []string
	// About is the job that this one looks into, for node diagnostics.
	About ID
	// Rollout lets the children of a parent start in waves; Deadline is then until
	// when all must have started.
	Rollout *Rollout
}

// NewLeaf returns the record of a queued top-level job on one node.
func NewLeaf(s Spec) Record { return newRecord(KindLeaf, s) }

// NewChild returns the record of a queued job on one node, the index-th child
// (counted from 1) of the top-level job parent. s.ID is not used.
func NewChild(parent ID, index uint32, s Spec) Record {
	s.ID, s.Cleanup, s.Rollout = parent.Child(index), nil, nil
	return newRecord(KindLeaf, s)
}

// NewParent returns the record of a running batch whose first total children are
// created with it. With admitted no further ones belong to this admission; a
// parent that is admitted without any child has failed already, and its first
// EventAdmitted or EventQueued tells the public stream so.
func NewParent(s Spec, total uint32, admitted bool) Record {
	r := newRecord(KindParent, s)
	if admitted || total > 0 {
		admit(&r, total)
		r.Admitted = admitted
		r, _ = derive(r, Change{}, r.CreatedAt)
		r.PublicN = 0 // nothing was published; the fold does that with the first event
	}
	return r
}

// NewCoordinator returns the record of a queued job that drives nodes of its rack.
// The locks of the reserved nodes, by id, and with rackPower the rack's power
// guard, are its own until it ends.
func NewCoordinator(s Spec, reserved []string, rackPower bool) Record {
	r := newRecord(KindCoordinator, s)
	r.Reserved, r.RackPower = reserved, rackPower
	return r
}

// Park notes that the job waits for holder to release the node.
func Park(r Record, holder ID, at time.Time) Record {
	r.WaitsFor = holder
	r.Description = cancelPrefix(r.Cancel.mode()) + WaitingText(holder)
	r.UpdatedAt = later(r.UpdatedAt, at)
	return r
}

// Promote notes that the job waits for nobody any more: the node is held for it.
func Promote(r Record, at time.Time) Record {
	r.WaitsFor = ID{}
	r.Description = cancelPrefix(r.Cancel.mode()) + textQueued
	r.UpdatedAt = later(r.UpdatedAt, at)
	return r
}

func newRecord(k Kind, s Spec) Record {
	created := stamp(s.CreatedAt)
	r := Record{
		ID: s.ID, Kind: k, Type: s.Type, Name: s.Name,
		RackID: s.RackID, NodeID: s.NodeID, Family: s.Family,
		State: initialState(k), Description: initialText(k, s.Type),
		CreatedAt: created, UpdatedAt: created, Deadline: stamp(s.Deadline),
		Visible: s.Visible, Cleanup: s.Cleanup, About: s.About, Rollout: s.Rollout,
	}
	if r.State == StateRunning {
		r.StartedAt = created
	}
	if r.Name == "" {
		r.Name = deriveName(&r)
	}
	if !s.WaitsFor.IsZero() {
		r = Park(r, s.WaitsFor, created)
	}
	return r
}

// deriveName makes a name that tells people what the job is about, for example
// "firmware_update.rack-1.node-3.1f0c22aa".
func deriveName(r *Record) string {
	parts := make([]string, 0, 4)
	parts = append(parts, string(r.Type))
	for _, p := range []string{r.RackID, r.NodeID} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	if r.Kind == KindParent && r.NodeID == "" {
		parts = append(parts, "batch")
	}
	return strings.Join(append(parts, r.ID.String()[:8]), ".")
}

// stamp brings t to the form that survives the codec: UTC, no monotonic part.
func stamp(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Round(0)
}
