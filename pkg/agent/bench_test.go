// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rackbus/rackbus/pkg/agent"
)

// BenchmarkSleepingJobs tells what one waiting job costs a process, and how long
// its claim takes with many at a time. Memory includes what the embedded broker
// keeps; it is told apart by what the jobs' end gives back.
func BenchmarkSleepingJobs(b *testing.B) {
	const jobs = 10_000
	for range b.N {
		timing := quickTiming()
		timing.AckWait, timing.WorkInterval, timing.SessionTTL = time.Minute, 10*time.Second, time.Minute
		s := newSite(b, timing)
		var sleeping atomic.Int64
		all := make(chan struct{})
		release := make(chan struct{})
		for range jobs {
			s.admit(order{limit: time.Hour})
		}
		begin := time.Now()
		p := s.start("a", only(func(ctx context.Context, task *agent.Task) (agent.Outcome, error) {
			return agent.Outcome{}, task.RunStages(ctx, []agent.Stage{{Name: "wait", Resume: agent.Resumable, Run: func(ctx context.Context) error {
				if sleeping.Add(1) == jobs {
					close(all)
				}
				sctx, cancel := context.WithCancel(ctx)
				defer cancel()
				go func() {
					select {
					case <-release:
						cancel()
					case <-sctx.Done():
					}
				}()
				_ = task.Sleep(sctx, time.Hour)
				return nil
			}}})
		}), func(o *agent.Options) { o.MaxInFlight, o.ProgressInterval = jobs, time.Hour })
		<-all
		b.ReportMetric(float64(time.Since(begin).Microseconds())/jobs, "µs/claim")
		stack, heap, goroutines := footprint()
		close(release)
		for p.Running() > 0 {
			runtime.Gosched()
		}
		stack2, heap2, goroutines2 := footprint()
		b.ReportMetric(float64(heap-heap2)/jobs, "heap-B/job")
		b.ReportMetric(float64(stack-stack2)/jobs, "stack-B/job")
		b.ReportMetric(float64(goroutines-goroutines2)/jobs-1, "goroutines/job") // one is the benchmark's own
		if err := p.stop(); err != nil {
			b.Fatal(err)
		}
	}
}

func footprint() (stack, heap int64, goroutines int) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.StackInuse), int64(m.HeapAlloc), runtime.NumGoroutine()
}
