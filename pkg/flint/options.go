// SPDX-License-Identifier: Apache-2.0

package flint

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/rackbus/rackbus/pkg/redfishagent"
	"github.com/rackbus/rackbus/pkg/ssh"
)

// Timing is every wait and limit of the work on a host. Zero fields take their
// defaults, which are those that NVIDIA's own tool uses.
type Timing struct {
	// Probe bounds one look whether the host is up; default 30 s. ReadyInterval
	// passes between ReadyAttempts of them, within ReadyLimit; defaults 15 s, 25
	// and 360 s.
	Probe         time.Duration
	ReadyInterval time.Duration
	ReadyAttempts int
	ReadyLimit    time.Duration
	// Query bounds a command that reads; default 60 s.
	Query time.Duration
	// Upload bounds the copy of one image; default 300 s.
	Upload time.Duration
	// Flash bounds the writing of one device; default 1200 s.
	Flash time.Duration
	// FlashPoll is the pause between looks whether an interrupted flash still runs;
	// default 5 s.
	FlashPoll time.Duration
	// VerifyInterval passes between VerifyAttempts comparisons of the versions after
	// the activation; defaults 15 s and 5.
	VerifyInterval time.Duration
	VerifyAttempts int
	// Clean bounds what is tidied up after a failure; default 30 s.
	Clean time.Duration
	// SSH are the waits of the connection.
	SSH ssh.Timing
}

func (t Timing) withDefaults() Timing {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&t.Probe, 30 * time.Second},
		{&t.ReadyInterval, 15 * time.Second},
		{&t.ReadyLimit, 360 * time.Second},
		{&t.Query, time.Minute},
		{&t.Upload, 300 * time.Second},
		{&t.Flash, 1200 * time.Second},
		{&t.FlashPoll, 5 * time.Second},
		{&t.VerifyInterval, 15 * time.Second},
		{&t.Clean, 30 * time.Second},
	} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	if t.ReadyAttempts <= 0 {
		t.ReadyAttempts = 25
	}
	if t.VerifyAttempts <= 0 {
		t.VerifyAttempts = 5
	}
	return t
}

// Options configure a Flint.
type Options struct {
	// HostKeys is the policy for the keys of host operating systems. Required.
	HostKeys ssh.HostKeys
	// Legacy offers old algorithms to hosts.
	Legacy bool
	Timing Timing
	// Dial replaces the TCP dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Flint is the in-band part of the firmware workflow.
type Flint struct{ opts Options }

var _ redfishagent.InBand = (*Flint)(nil)

// ErrInvalidOptions is wrapped by errors about Options.
var ErrInvalidOptions = errors.New("flint: invalid options")

// New checks the options.
func New(opts Options) (*Flint, error) {
	if opts.HostKeys == nil {
		return nil, fmt.Errorf("%w: no host key policy", ErrInvalidOptions)
	}
	opts.Timing = opts.Timing.withDefaults()
	return &Flint{opts}, nil
}
