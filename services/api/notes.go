// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"sync"

	"github.com/rackbus/rackbus/pkg/job"
)

// notes are what a handler tells the log and the audit about its call.
type notes struct {
	mu     sync.Mutex
	reason string   // of a failure that the answer has no field for
	told   int      // bytes of all reasons
	beside []job.ID // jobs whose nodes were acted on
}

type notesKey struct{}

// withNotes returns a context in which tellReason and tellBeside are heard.
func withNotes(ctx context.Context) context.Context {
	if _, ok := ctx.Value(notesKey{}).(*notes); ok {
		return ctx
	}
	return context.WithValue(ctx, notesKey{}, &notes{})
}

// notesOf returns a copy of what was told so far.
func notesOf(ctx context.Context) (reason string, beside []job.ID) {
	n, ok := ctx.Value(notesKey{}).(*notes)
	if !ok {
		return "", nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.reason, n.beside[:len(n.beside):len(n.beside)]
}

// tellBeside says that a node was acted on beside the job that holds it.
func tellBeside(ctx context.Context, id job.ID) {
	if n, ok := ctx.Value(notesKey{}).(*notes); ok {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.beside = append(n.beside, id)
	}
}

// setReason returns whether there is room for the reason in the trailer: clients refuse
// answers with many kilobytes of metadata.
func (n *notes) setReason(reason string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.told > 0 && n.told+len(reason) > maxReason {
		return false
	}
	n.reason, n.told = reason, n.told+len(reason)
	return true
}
