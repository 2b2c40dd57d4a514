// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rackbus/rackbus/pkg/node"
)

// pause waits d or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// eachNode calls do for the indexes of refs, at most limit at a time. Occurrences
// of the same node go one after the other, in their order, because a node serves
// one request at a time. A panic of do is that of the caller.
func eachNode(refs []node.Ref, limit int, do func(index int)) {
	var order []node.Ref
	groups := make(map[node.Ref][]int, len(refs))
	for i, r := range refs {
		if _, known := groups[r]; !known {
			order = append(order, r)
		}
		groups[r] = append(groups[r], i)
	}
	slots := make(chan struct{}, limit)
	panics := make(chan any, len(order))
	var wg sync.WaitGroup
	for _, r := range order {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() {
				// A goroutine's own panic would end the whole process.
				if p := recover(); p != nil {
					panics <- p
				}
				<-slots
			}()
			for _, i := range groups[r] {
				do(i)
			}
		})
	}
	wg.Wait()
	select {
	case p := <-panics:
		panic(p)
	default:
	}
}

// isDeadline reports whether an error is that of a passed deadline.
func isDeadline(err error) bool { return errors.Is(err, context.DeadlineExceeded) }
