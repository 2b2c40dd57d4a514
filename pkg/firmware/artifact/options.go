// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"crypto/x509"
	"log/slog"
	"net"
	"time"
)

// Limits bound what is fetched. The defaults are Rackbus choices.
type Limits struct {
	// MaxFile is the largest file, in bytes; default 32 GiB.
	MaxFile int64
	// MaxFiles is how many files one cache may have; default 900, what the
	// catalogue takes.
	MaxFiles int
	// MaxTotal is how much all files of one cache may have, in bytes; default 128 GiB.
	MaxTotal int64
	// Concurrent is how many files one process fetches at a time; default 4.
	Concurrent int
	// Redirects is how many of them are followed in a row; default 5.
	Redirects int
}

// Timing holds the waits of downloads. The defaults are Rackbus choices where no
// source is named.
type Timing struct {
	// Connect bounds connecting, and TLS once more; default 30 s, as published.
	Connect time.Duration
	// Stall ends a try that gets no byte for so long; default 1 min.
	Stall time.Duration
	// File bounds one file with all tries; default 2 h. The published 10 min are too
	// short for an image of several GiB on a slow line.
	File time.Duration
	// Attempts is how many tries in a row may fail without getting any further;
	// default 6.
	Attempts int
	// PauseMin and PauseMax bound the pause between tries, which doubles; defaults
	// 1 s and 1 min. A longer one that the server asks for is kept up to
	// RetryAfterMax; default 5 min.
	PauseMin      time.Duration
	PauseMax      time.Duration
	RetryAfterMax time.Duration
	// Progress is the least pause between two reports of one file; default 2 s.
	Progress time.Duration
}

// Options configure a Fetcher. Policy is required.
type Options struct {
	Policy Policy
	Limits Limits
	Timing Timing
	// Roots verify HTTPS servers; nil takes those of the system.
	Roots *x509.CertPool
	// Resolver resolves names; nil takes that of the system.
	Resolver *net.Resolver
	// OnBytes is told how many bytes have come, whatever becomes of them, by several
	// files at the same time; nil is fine.
	OnBytes func(n int)
	// Logger receives what is tried again; nil drops it.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	l, t := &o.Limits, &o.Timing
	setDefault(&l.MaxFile, 32<<30)
	setDefault(&l.MaxFiles, 900)
	setDefault(&l.MaxTotal, 128<<30)
	setDefault(&l.Concurrent, 4)
	setDefault(&l.Redirects, 5)
	setDefault(&t.Connect, 30*time.Second)
	setDefault(&t.Stall, time.Minute)
	setDefault(&t.File, 2*time.Hour)
	setDefault(&t.Attempts, 6)
	setDefault(&t.PauseMin, time.Second)
	setDefault(&t.PauseMax, time.Minute)
	setDefault(&t.RetryAfterMax, 5*time.Minute)
	setDefault(&t.Progress, 2*time.Second)
	if o.OnBytes == nil {
		o.OnBytes = func(int) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}
