// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"context"
	"io"
	"sync"
	"time"
)

// stallWatch cancels an upload whose body is no longer being taken.
type stallWatch struct {
	cancel context.CancelCauseFunc
	stall  time.Duration
	answer time.Duration

	mu    sync.Mutex
	timer *time.Timer
}

func watchStall(ctx context.Context, stall, answer time.Duration) (context.Context, *stallWatch) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &stallWatch{cancel: cancel, stall: stall, answer: answer}
	w.timer = time.AfterFunc(stall, func() { cancel(errStalled) })
	return ctx, w
}

// moved starts the next wait.
func (w *stallWatch) moved(next time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Reset(next)
}

func (w *stallWatch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
	w.cancel(nil)
}

func (w *stallWatch) reader(r io.Reader, total int64, progress func(sent, total int64)) io.Reader {
	return &watchedReader{r: r, watch: w, total: total, progress: progress}
}

// watchedReader reports the bytes as the transport takes them.
type watchedReader struct {
	r        io.Reader
	watch    *stallWatch
	sent     int64
	total    int64
	progress func(sent, total int64)
}

func (w *watchedReader) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	w.sent += int64(n)
	next := w.watch.stall
	if w.sent >= w.total {
		// All taken: the device now verifies the image before it answers.
		next = w.watch.answer
	}
	w.watch.moved(next)
	if n > 0 && w.progress != nil {
		w.progress(w.sent, w.total)
	}
	return n, err
}
