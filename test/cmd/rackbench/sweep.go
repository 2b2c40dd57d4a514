// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// sweep is one call for each of a number of nodes.
type sweep struct {
	elapsed time.Duration
	calls   []time.Duration
}

// sweepNodes calls once for each node, some at a time, and waits for all. Any
// failed call makes the numbers worthless and is an error.
func sweepNodes(ctx context.Context, nodes, concurrency int, call func(ctx context.Context, node int) error) (sweep, error) {
	s := sweep{calls: make([]time.Duration, nodes)}
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, concurrency)
	start := time.Now()
	for w := range concurrency {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= nodes || errs[w] != nil {
					return
				}
				began := time.Now()
				errs[w] = call(ctx, i)
				s.calls[i] = time.Since(began)
			}
		})
	}
	wg.Wait()
	s.elapsed = time.Since(start)
	if err := errors.Join(errs...); err != nil {
		return s, fmt.Errorf("calls failed: %w", err)
	}
	return s, nil
}

// reading sums sweeps up.
type reading struct {
	Calls     int           `json:"calls"`
	Elapsed   time.Duration `json:"elapsed_ns"`
	PerSecond float64       `json:"calls_per_second"`
	P50       time.Duration `json:"p50_ns"`
	P99       time.Duration `json:"p99_ns"`
	// CPU per call, by process.
	CPU cpuPerCall `json:"cpu_per_call"`
}

type cpuPerCall struct {
	Bench   time.Duration `json:"bench_ns"`
	Rackbus time.Duration `json:"rackbus_ns"`
	Racksim time.Duration `json:"racksim_ns"`
}

func sum(sweeps []sweep) reading {
	var r reading
	var all []time.Duration
	for _, s := range sweeps {
		r.Elapsed += s.elapsed
		all = append(all, s.calls...)
	}
	slices.Sort(all)
	r.Calls = len(all)
	r.PerSecond = float64(r.Calls) / r.Elapsed.Seconds()
	r.P50, r.P99 = percentile(all, 50), percentile(all, 99)
	return r
}

// percentile takes the nearest rank of sorted values.
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, (len(sorted)*p+99)/100-1)]
}
