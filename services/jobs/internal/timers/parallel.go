// SPDX-License-Identifier: Apache-2.0

package timers

import (
	"sync"

	"github.com/rackbus/rackbus/pkg/job"
)

// publishers send the requests to the children of a batch; their events are
// written together.
const publishers = 64

// inParallel calls do for every id, for several at a time, and returns one of the
// errors.
func inParallel(ids []job.ID, do func(job.ID) error) error {
	queue := make(chan job.ID)
	errs := make(chan error, publishers)
	var wg sync.WaitGroup
	for range min(publishers, len(ids)) {
		wg.Go(func() {
			var failed error
			for id := range queue {
				if err := do(id); err != nil && failed == nil {
					failed = err
				}
			}
			errs <- failed
		})
	}
	for _, id := range ids {
		queue <- id
	}
	close(queue)
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
