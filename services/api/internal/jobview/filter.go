// SPDX-License-Identifier: Apache-2.0

package jobview

import (
	"slices"
	"time"

	"github.com/rackbus/rackbus/pkg/job"
)

// Filter selects jobs; what is zero selects everything.
type Filter struct {
	States       []job.State
	Types        []job.Type
	RackID       string
	NodeID       string
	CreatedSince time.Time
	TopLevelOnly bool
	// Parent selects the children of one job.
	Parent job.ID
	Name   string
	// About selects the diagnoses that look into one job.
	About job.ID
}

// Match reports whether the filter selects the job.
func (f *Filter) Match(r *job.Record) bool {
	switch {
	case len(f.States) > 0 && !slices.Contains(f.States, r.State),
		len(f.Types) > 0 && !slices.Contains(f.Types, r.Type),
		f.RackID != "" && f.RackID != r.RackID,
		f.NodeID != "" && f.NodeID != r.NodeID,
		!f.CreatedSince.IsZero() && r.CreatedAt.Before(f.CreatedSince),
		f.TopLevelOnly && !r.ID.IsTopLevel(),
		!f.Parent.IsZero() && (r.ID.IsTopLevel() || r.ID.Parent() != f.Parent),
		!f.About.IsZero() && f.About != r.About,
		f.Name != "" && f.Name != r.Name:
		return false
	}
	return true
}
