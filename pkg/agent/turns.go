// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"sync"

	"github.com/rackbus/rackbus/pkg/node"
)

// turns lets one request at a time through to each node.
type turns struct {
	mu    sync.Mutex
	nodes map[node.Ref]*turn
}

type turn struct {
	free    chan struct{}
	waiting int
}

func newTurns() *turns { return &turns{nodes: map[node.Ref]*turn{}} }

// enter waits for the node's turn, at most until ctx ends.
func (t *turns) enter(ctx context.Context, ref node.Ref) (leave func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t.mu.Lock()
	n := t.nodes[ref]
	if n == nil {
		n = &turn{free: make(chan struct{}, 1)}
		n.free <- struct{}{}
		t.nodes[ref] = n
	}
	n.waiting++
	t.mu.Unlock()
	select {
	case <-n.free:
		return func() {
			n.free <- struct{}{}
			t.drop(ref, n)
		}, nil
	case <-ctx.Done():
		t.drop(ref, n)
		return nil, ctx.Err()
	}
}

func (t *turns) drop(ref node.Ref, n *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n.waiting--
	if n.waiting == 0 {
		delete(t.nodes, ref)
	}
}
