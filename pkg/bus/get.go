// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// multiGetSubjects is how many subjects one multi-get names. The broker answers
// at most 1,024.
const multiGetSubjects = 500

// multiGetBytes is after how many bytes the broker ends the answer to a multi-get. Without
// it that would be as much as it keeps for a slow client at most, which it then cuts off.
const multiGetBytes = 16 << 20

// stored is one message as a stream holds it.
type stored struct {
	subject string
	data    []byte
	rev     Revision
	header  nats.Header
}

// expired reports whether the message only marks that a key has expired or
// was deleted.
func (s stored) expired() bool {
	return s.header.Get(hdrMarker) != "" || s.header.Get("KV-Operation") != ""
}

// leaderGet reads the last message of a subject at the stream leader. It wraps
// ErrNotFound when there is none. A marker of an expired key is returned as it
// is: the caller may need its revision.
func (c *Conn) leaderGet(ctx context.Context, stream, subject string) (stored, error) {
	if c.opts.Replicas == 1 {
		// The only replica is the leader, and answers direct gets faster.
		return c.directGet(ctx, stream, subject)
	}
	return c.leaderRead(ctx, stream, map[string]any{"last_by_subj": subject}, "read "+subject)
}

// leaderRead asks the stream leader for one message.
func (c *Conn) leaderRead(ctx context.Context, stream string, query map[string]any, what string) (stored, error) {
	req, err := json.Marshal(query)
	if err != nil {
		return stored{}, fmt.Errorf("encode request: %w", err)
	}
	ctx, cancel := c.requestContext(ctx)
	defer cancel()
	reply, err := c.nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream, req)
	if err != nil {
		return stored{}, classify(what, err, false)
	}
	var a struct {
		Error   *apiError `json:"error"`
		Message struct {
			Subject string `json:"subject"`
			Seq     uint64 `json:"seq"`
			Data    []byte `json:"data"`
			Hdrs    []byte `json:"hdrs"`
		} `json:"message"`
	}
	if err := json.Unmarshal(reply.Data, &a); err != nil {
		return stored{}, fmt.Errorf("%s: %w: unreadable answer: %w", what, ErrUnavailable, err)
	}
	if a.Error != nil {
		return stored{}, a.Error.asError(what)
	}
	s := stored{subject: a.Message.Subject, data: a.Message.Data, rev: Revision(a.Message.Seq)}
	if len(a.Message.Hdrs) > 0 {
		if s.header, err = nats.DecodeHeadersMsg(a.Message.Hdrs); err != nil {
			return stored{}, fmt.Errorf("%s: headers: %w", what, err)
		}
	}
	return s, nil
}

// directGet reads the last message of a subject from any replica.
func (c *Conn) directGet(ctx context.Context, stream, subject string) (stored, error) {
	ctx, cancel := c.requestContext(ctx)
	defer cancel()
	reply, err := c.nc.RequestWithContext(ctx, "$JS.API.DIRECT.GET."+stream+"."+subject, nil)
	if err != nil {
		return stored{}, classify("read "+subject, err, false)
	}
	if status := reply.Header.Get("Status"); status != "" {
		if status == "404" {
			return stored{}, fmt.Errorf("read %s: %w", subject, ErrNotFound)
		}
		return stored{}, fmt.Errorf("read %s: %w: status %s", subject, ErrUnavailable, status)
	}
	return storedFromDirect(reply)
}

func storedFromDirect(m *nats.Msg) (stored, error) {
	seq, err := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
	if err != nil {
		return stored{}, fmt.Errorf("%w: direct get without sequence: %w", ErrUnavailable, err)
	}
	return stored{subject: m.Header.Get("Nats-Subject"), data: m.Data, rev: Revision(seq), header: m.Header}, nil
}

// get reads a key's value; a marker counts as absent but its revision is kept,
// because a create must then expect it. The error wraps ErrNotFound.
func (c *Conn) get(ctx context.Context, stream, subject string) (data []byte, rev Revision, err error) {
	s, err := c.leaderGet(ctx, stream, subject)
	if err != nil {
		return nil, 0, err
	}
	if s.expired() {
		return nil, s.rev, fmt.Errorf("read %s: %w: expired", subject, ErrNotFound)
	}
	return s.data, s.rev, nil
}

// multiGet reads the last messages of many subjects. A replica that has not yet
// applied revision atLeast is not believed: the subjects are then read one by
// one at the leader. Subjects without message are absent from the result.
func (c *Conn) multiGet(ctx context.Context, stream string, subjects []string, atLeast Revision) (map[string]stored, error) {
	out := make(map[string]stored, len(subjects))
	for start := 0; start < len(subjects); start += multiGetSubjects {
		chunk := subjects[start:min(start+multiGetSubjects, len(subjects))]
		upTo, err := c.multiGetAll(ctx, stream, chunk, out)
		if err != nil {
			return nil, err
		}
		if c.opts.Replicas > 1 && upTo < atLeast {
			if err := c.leaderGetEach(ctx, stream, chunk, out); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// multiGetAll fills out, in several requests when one answer would be too large, and
// returns the least revision that an answering replica had.
func (c *Conn) multiGetAll(ctx context.Context, stream string, subjects []string, out map[string]stored) (Revision, error) {
	upTo, whole, err := c.multiGetChunk(ctx, stream, subjects, out)
	for err == nil && !whole {
		subjects = slices.DeleteFunc(slices.Clone(subjects), func(s string) bool { _, has := out[s]; return has })
		if len(subjects) == 0 {
			break
		}
		var next Revision
		next, whole, err = c.multiGetChunk(ctx, stream, subjects, out)
		upTo = min(upTo, next)
	}
	return upTo, err
}

func (c *Conn) leaderGetEach(ctx context.Context, stream string, subjects []string, out map[string]stored) error {
	for _, subject := range subjects {
		s, err := c.leaderGet(ctx, stream, subject)
		if errors.Is(err, ErrNotFound) {
			delete(out, subject)
			continue
		}
		if err != nil {
			return err
		}
		out[subject] = s
	}
	return nil
}

// multiGetChunk fills out and returns the revision the answering replica had. whole says
// that nothing was left out because the answer would have been too large.
func (c *Conn) multiGetChunk(ctx context.Context, stream string, subjects []string, out map[string]stored) (upTo Revision, whole bool, err error) {
	req, err := json.Marshal(map[string]any{"multi_last": subjects, "max_bytes": multiGetBytes})
	if err != nil {
		return 0, false, fmt.Errorf("encode request: %w", err)
	}
	inbox := c.nc.NewRespInbox()
	sub, err := c.nc.SubscribeSync(inbox)
	if err != nil {
		return 0, false, classify("multi-get", err, false)
	}
	defer func() {
		if err := sub.Unsubscribe(); err != nil {
			c.log.Debug("multi-get inbox not released", "err", err)
		}
	}()
	if err := c.nc.PublishRequest("$JS.API.DIRECT.GET."+stream, inbox, req); err != nil {
		return 0, false, classify("multi-get", err, false)
	}
	ctx, cancel := c.requestContext(ctx)
	defer cancel()
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return 0, false, classify("multi-get", err, false)
		}
		status, description := m.Header.Get("Status"), m.Header.Get("Description")
		switch {
		case status == "":
			s, err := storedFromDirect(m)
			if err != nil {
				return 0, false, err
			}
			out[s.subject] = s
		case status == "204":
			seq, err := strconv.ParseUint(m.Header.Get("Nats-UpTo-Sequence"), 10, 64)
			if err != nil {
				seq = 0
			}
			left := m.Header.Get("Nats-Num-Pending")
			return Revision(seq), left == "" || left == "0", nil
		case status == "404" && description == noResults:
			return 0, true, nil
		default: // also a 404 for one that the broker has and cannot load
			return 0, false, fmt.Errorf("multi-get: %w: status %s %s", ErrUnavailable, status, description)
		}
	}
}

// noResults is how the broker says that none of the subjects has a message.
const noResults = "No Results"

// put writes one message and returns its revision. expect nil means that any
// state of the key is fine; ttl 0 means that it stays.
func (c *Conn) put(ctx context.Context, subject string, data []byte, expect *Revision, ttl time.Duration) (Revision, error) {
	m := newMessage(subject, data)
	if expect != nil {
		m.Header.Set(hdrExpectedLast, strconv.FormatUint(uint64(*expect), 10))
	}
	setTTL(m, ttl)
	return c.publish(ctx, m)
}

// publish sends one message to its stream and waits for the answer.
func (c *Conn) publish(ctx context.Context, m *nats.Msg) (Revision, error) {
	rctx, cancel := c.requestContext(ctx)
	defer cancel()
	ack, err := c.js.PublishMsg(rctx, m, jetstream.WithRetryAttempts(0))
	if err != nil {
		err = unanswered(ctx, classify("write "+m.Subject, err, true))
		c.health.note(streamOf(m.Subject), err)
		return 0, err
	}
	c.health.note(ack.Stream, nil)
	return Revision(ack.Sequence), nil
}

func newMessage(subject string, data []byte) *nats.Msg {
	return &nats.Msg{Subject: subject, Data: data, Header: nats.Header{}}
}

func setTTL(m *nats.Msg, ttl time.Duration) {
	if ttl <= 0 {
		return
	}
	// The broker counts whole seconds and refuses less than one.
	seconds := max(int64((ttl+time.Second-1)/time.Second), 1)
	m.Header.Set(hdrTTL, strconv.FormatInt(seconds, 10))
}

// eraseMessage overwrites and deletes one message of a stream by its sequence.
// It wraps ErrNotFound when the message is not there any more.
func (c *Conn) eraseMessage(ctx context.Context, stream string, rev Revision) error {
	req, err := json.Marshal(map[string]any{"seq": uint64(rev)})
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	err = c.api(ctx, "$JS.API.STREAM.MSG.DELETE."+stream, req, "erase message")
	var refused *apiError
	if !errors.As(err, &refused) || refused.ErrCode != codeMessageDeleteFailed {
		return err
	}
	// The broker has one code for every reason; whether the message is there
	// tells them apart.
	if gone := c.api(ctx, "$JS.API.STREAM.MSG.GET."+stream, req, "look up message"); errors.Is(gone, ErrNotFound) {
		return gone
	}
	return err
}

// purge removes all messages of a stream that match a subject filter.
func (c *Conn) purge(ctx context.Context, stream, filter string) error {
	req, err := json.Marshal(map[string]any{"filter": filter})
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	return c.api(ctx, "$JS.API.STREAM.PURGE."+stream, req, "purge "+filter)
}

func (c *Conn) api(ctx context.Context, subject string, req []byte, what string) error {
	ctx, cancel := c.requestContext(ctx)
	defer cancel()
	reply, err := c.nc.RequestWithContext(ctx, subject, req)
	if err != nil {
		return classify(what, err, false)
	}
	var a struct {
		Error *apiError `json:"error"`
	}
	if err := json.Unmarshal(reply.Data, &a); err != nil {
		return fmt.Errorf("%s: %w: unreadable answer: %w", what, ErrUnavailable, err)
	}
	if a.Error != nil {
		if a.Error.Code == 404 {
			return fmt.Errorf("%s: %w", what, ErrNotFound)
		}
		return a.Error.asError(what)
	}
	return nil
}
