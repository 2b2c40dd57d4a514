// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// provisionRetry is the pause between attempts while the broker is away.
const provisionRetry = 500 * time.Millisecond

// minPayload is what one message may have to hold: the changes of a whole fold
// commit. A broker with its own default of 1 MiB would refuse that commit for
// ever, and no job of the partition could end any more.
const minPayload = 8 << 20

// Provision creates what is missing and verifies what is there. It waits for
// the broker until ctx ends. A stream or consumer that differs from what is
// needed is ErrMisconfigured, with every difference named; nothing is changed.
func (c *Conn) Provision(ctx context.Context) error {
	return c.untilUp(ctx, func(ctx context.Context) error { return c.ensure(ctx, true) })
}

// Verify waits until another process has provisioned the broker, and verifies
// the streams without creating any.
func (c *Conn) Verify(ctx context.Context) error {
	return c.untilUp(ctx, func(ctx context.Context) error { return c.ensure(ctx, false) })
}

func (c *Conn) untilUp(ctx context.Context, try func(context.Context) error) error {
	for {
		err := c.tryEnsure(ctx, try)
		if err == nil {
			c.verified.Store(true)
			return nil
		}
		if errors.Is(err, ErrMisconfigured) || errors.Is(err, ErrServerVersion) || errors.Is(err, ErrClosed) {
			return err
		}
		c.log.Debug("bus not provisioned yet", "err", err)
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (last error: %w)", ctx.Err(), err)
		case <-time.After(provisionRetry):
		}
	}
}

func (c *Conn) tryEnsure(ctx context.Context, try func(context.Context) error) error {
	if !c.nc.IsConnected() {
		if c.nc.IsClosed() {
			return ErrClosed
		}
		return fmt.Errorf("%w: %s", ErrUnavailable, c.nc.Status())
	}
	c.mu.Lock()
	err := c.versionErr
	c.mu.Unlock()
	if err != nil {
		return err
	}
	if limit := c.nc.MaxPayload(); limit < minPayload {
		return fmt.Errorf("%w: max_payload is %d bytes, needed are %d", ErrMisconfigured, limit, minPayload)
	}
	return try(ctx)
}

func (c *Conn) ensure(ctx context.Context, create bool) error {
	var drift []string
	for _, want := range streams(c.opts.Replicas) {
		d, err := c.ensureStream(ctx, want, create)
		if err != nil {
			return err
		}
		drift = append(drift, d...)
	}
	for _, want := range consumers(c.timing) {
		d, err := c.ensureConsumer(ctx, want, create)
		if err != nil {
			return err
		}
		drift = append(drift, d...)
	}
	if len(drift) > 0 {
		return fmt.Errorf("%w: %s", ErrMisconfigured, strings.Join(drift, "; "))
	}
	return nil
}

// tellMissing tells an operator of what was there before: its content is lost.
func (c *Conn) tellMissing(what, name string) {
	if c.verified.Load() {
		c.log.Error("bus has lost what it kept, it is created again without its content", "what", what, "name", name)
	}
}

func (c *Conn) ensureStream(ctx context.Context, want jetstream.StreamConfig, create bool) ([]string, error) {
	ctx, cancel := c.requestContext(ctx)
	defer cancel()
	s, err := c.js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) && create {
		c.tellMissing("stream", want.Name)
		s, err = c.js.CreateStream(ctx, want)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			s, err = c.js.Stream(ctx, want.Name)
		}
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("%w: stream %s does not exist yet", ErrUnavailable, want.Name)
	}
	if err != nil {
		return nil, classify("look up stream "+want.Name, err, false)
	}
	return streamDrift(want, s.CachedInfo().Config), nil
}

func (c *Conn) ensureConsumer(ctx context.Context, want jetstream.ConsumerConfig, create bool) ([]string, error) {
	ctx, cancel := c.requestContext(ctx)
	defer cancel()
	got, err := c.js.Consumer(ctx, streamState, want.Durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) && create {
		c.tellMissing("consumer", want.Durable)
		got, err = c.js.CreateConsumer(ctx, streamState, want)
		if errors.Is(err, jetstream.ErrConsumerExists) {
			got, err = c.js.Consumer(ctx, streamState, want.Durable)
		}
	}
	// Its stream may have gone since it was looked at.
	if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("%w: consumer %s does not exist yet", ErrUnavailable, want.Durable)
	}
	if err != nil {
		return nil, classify("look up consumer "+want.Durable, err, false)
	}
	return consumerDrift(want, got.CachedInfo().Config), nil
}

// streamDrift names every setting that matters and differs.
func streamDrift(want, got jetstream.StreamConfig) []string {
	d := differ{what: "stream " + want.Name}
	d.compare("subjects", want.Subjects, got.Subjects)
	d.compare("retention", want.Retention, got.Retention)
	d.compare("storage", want.Storage, got.Storage)
	d.compare("num_replicas", want.Replicas, got.Replicas)
	d.compare("discard", want.Discard, got.Discard)
	d.compare("max_msgs_per_subject", want.MaxMsgsPerSubject, got.MaxMsgsPerSubject)
	d.compare("max_msgs", want.MaxMsgs, got.MaxMsgs)
	d.compare("max_bytes", want.MaxBytes, got.MaxBytes)
	d.compare("max_age", want.MaxAge, got.MaxAge)
	d.compare("duplicate_window", want.Duplicates, got.Duplicates)
	d.compare("allow_direct", want.AllowDirect, got.AllowDirect)
	d.compare("allow_rollup_hdrs", want.AllowRollup, got.AllowRollup)
	d.compare("allow_msg_ttl", want.AllowMsgTTL, got.AllowMsgTTL)
	d.compare("allow_msg_schedules", want.AllowMsgSchedules, got.AllowMsgSchedules)
	d.compare("allow_atomic", want.AllowAtomicPublish, got.AllowAtomicPublish)
	d.compare("deny_delete", want.DenyDelete, got.DenyDelete)
	d.compare("deny_purge", want.DenyPurge, got.DenyPurge)
	d.compare("subject_delete_marker_ttl", want.SubjectDeleteMarkerTTL, got.SubjectDeleteMarkerTTL)
	return d.found
}

func consumerDrift(want, got jetstream.ConsumerConfig) []string {
	d := differ{what: "consumer " + want.Durable}
	d.compare("filter_subject", want.FilterSubject, got.FilterSubject)
	d.compare("deliver_policy", want.DeliverPolicy, got.DeliverPolicy)
	d.compare("ack_policy", want.AckPolicy, got.AckPolicy)
	d.compare("ack_wait", want.AckWait, got.AckWait)
	d.compare("max_deliver", want.MaxDeliver, got.MaxDeliver)
	d.compare("max_ack_pending", want.MaxAckPending, got.MaxAckPending)
	d.compare("backoff", len(want.BackOff), len(got.BackOff))
	return d.found
}

type differ struct {
	what  string
	found []string
}

func (d *differ) compare(setting string, want, got any) {
	w, g := fmt.Sprint(want), fmt.Sprint(got)
	if w != g {
		d.found = append(d.found, fmt.Sprintf("%s: %s is %s, needed is %s", d.what, setting, g, w))
	}
}
