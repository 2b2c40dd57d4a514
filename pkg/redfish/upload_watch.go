// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"
)

// stallWatch cancels an upload whose body is no longer being taken.
type stallWatch struct {
	cancel context.CancelCauseFunc
	stall  time.Duration
	answer time.Duration

	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
}

// errUploadOver ends the reads of a transport that goes on after it has answered.
var errUploadOver = errors.New("the upload is over")

func watchStall(ctx context.Context, stall, answer time.Duration) (context.Context, *stallWatch) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &stallWatch{cancel: cancel, stall: stall, answer: answer}
	w.timer = time.AfterFunc(stall, func() { cancel(errStalled) })
	return ctx, w
}

// stop ends the watch. The file is not read and no progress is told after it.
func (w *stallWatch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
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
	w.watch.mu.Lock()
	defer w.watch.mu.Unlock()
	if w.watch.stopped {
		return 0, errUploadOver
	}
	n, err := w.r.Read(p)
	w.sent += int64(n)
	next := w.watch.stall
	if w.sent >= w.total {
		// All taken: the device now verifies the image before it answers.
		next = w.watch.answer
	}
	w.watch.timer.Reset(next)
	if n > 0 && w.progress != nil {
		w.progress(w.sent, w.total)
	}
	return n, err
}
