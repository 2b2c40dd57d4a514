// SPDX-License-Identifier: Apache-2.0

package redfishagent

import "context"

// seats bound how many devices are asked many things in a row at a time. Without
// a bound, the jobs of a large batch take turns request by request: every one of
// them holds a connection open, or finds that its own was closed as idle and
// opens another, and the leases of the process wait behind all of them.
type seats chan struct{}

// seated runs a burst of requests once there is a seat.
func (s seats) seated(ctx context.Context, burst func() error) error {
	select {
	case s <- struct{}{}:
		defer func() { <-s }()
		return burst()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
