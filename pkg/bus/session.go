// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nuid"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// Session is the lease of one agent process. While it is valid, the jobs whose
// checkpoints name it belong to this process and to no other.
type Session struct {
	l      *lease
	id     string
	family node.Family
}

// OpenSession starts a session under a new id.
func (c *Conn) OpenSession(ctx context.Context, family node.Family, instance string) (*Session, error) {
	id := encodeToken(instance) + "-" + nuid.Next()
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	data, err := proto.Marshal(&rackbusv1.AgentSession{V: 1, Instance: instance, Host: host, Since: timestamppb.Now()})
	if err != nil {
		return nil, fmt.Errorf("encode session: %w", err)
	}
	t := c.timing
	l, err := c.acquireLease(ctx, sessionSubject(family, id), data, t.SessionTTL, t.SessionRenew, t.SessionMargin)
	if err != nil {
		return nil, fmt.Errorf("open session: %w", err)
	}
	return &Session{l: l, id: id, family: family}, nil
}

// ID names the session in checkpoints.
func (s *Session) ID() string { return s.id }

// Valid reports whether the session certainly holds at this moment.
func (s *Session) Valid() bool { return s.l.valid() }

// Remaining is how long the session is certain without another renewal.
func (s *Session) Remaining() time.Duration { return s.l.remaining() }

// Context returns a context that ends when the session's validity ends. Each
// renewal moves that moment.
func (s *Session) Context(parent context.Context) (context.Context, context.CancelFunc) {
	return s.l.context(parent)
}

// Lost is closed when the session is gone for good. A session whose validity
// lapsed for a while is not lost.
func (s *Session) Lost() <-chan struct{} { return s.l.lost }

// Close gives the session up, so that its jobs can be taken over at once.
func (s *Session) Close(ctx context.Context) error { return s.l.release(ctx) }

// SessionAlive reports whether a session's key still exists.
func (c *Conn) SessionAlive(ctx context.Context, family node.Family, session string) (bool, error) {
	_, _, err := c.get(ctx, streamSessions, sessionSubject(family, session))
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// fencedInstance is the instance in the key of a session that was fenced.
const fencedInstance = "fenced"

// fenceTries bounds how often a fence competes with renewals of the session.
const fenceTries = 5

// FenceSession takes a session away from its owner, which cannot renew it any
// more and stops acting when its validity ends. The key stays for one more
// session TTL, so that nobody takes the owner's jobs over before that moment:
// until then SessionAlive is true. Fencing again does not prolong it.
func (c *Conn) FenceSession(ctx context.Context, family node.Family, session string) error {
	subject := sessionSubject(family, session)
	for range fenceTries {
		var held rackbusv1.AgentSession
		rev, err := c.getProto(ctx, streamSessions, subject, &held)
		if errors.Is(err, ErrNotFound) || err == nil && held.GetInstance() == fencedInstance {
			return nil
		}
		if err != nil {
			return err
		}
		fence := &rackbusv1.AgentSession{V: 1, Instance: fencedInstance, Host: held.GetHost(), Since: timestamppb.Now()}
		if _, err = c.putProto(ctx, subject, fence, &rev, c.timing.SessionTTL); !errors.Is(err, ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("fence session %s: %w", session, ErrConflict)
}

// Sessions returns how many processes of a family have a session.
func (c *Conn) Sessions(ctx context.Context, family node.Family) (int, error) {
	req, err := json.Marshal(map[string]string{"subjects_filter": subjSessPrefix + string(family) + ".>"})
	if err != nil {
		return 0, fmt.Errorf("encode request: %w", err)
	}
	subjects, err := c.subjectCounts(ctx, streamSessions, req)
	if err != nil {
		return 0, err
	}
	alive := 0
	for subject := range subjects {
		_, _, err := c.get(ctx, streamSessions, subject)
		if err == nil {
			alive++
		} else if !errors.Is(err, ErrNotFound) {
			return 0, err
		}
	}
	return alive, nil
}

// FamilyAlive reports whether any agent of a family has a session.
func (c *Conn) FamilyAlive(ctx context.Context, family node.Family) (bool, error) {
	req, err := json.Marshal(map[string]string{"subjects_filter": subjSessPrefix + string(family) + ".>"})
	if err != nil {
		return false, fmt.Errorf("encode request: %w", err)
	}
	subjects, err := c.subjectCounts(ctx, streamSessions, req)
	if err != nil {
		return false, err
	}
	for subject := range subjects {
		_, _, err := c.get(ctx, streamSessions, subject)
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, ErrNotFound) {
			return false, err
		}
	}
	return false, nil
}

// subjectCounts asks the stream leader for the subjects that match a filter.
func (c *Conn) subjectCounts(ctx context.Context, stream string, req []byte) (map[string]uint64, error) {
	ctx, cancel := c.requestContext(ctx)
	defer cancel()
	reply, err := c.nc.RequestWithContext(ctx, "$JS.API.STREAM.INFO."+stream, req)
	if err != nil {
		return nil, classify("count subjects of "+stream, err, false)
	}
	var a struct {
		Error *apiError `json:"error"`
		State struct {
			Subjects map[string]uint64 `json:"subjects"`
		} `json:"state"`
	}
	if err := json.Unmarshal(reply.Data, &a); err != nil {
		return nil, fmt.Errorf("count subjects of %s: %w: unreadable answer: %w", stream, ErrUnavailable, err)
	}
	if a.Error != nil {
		return nil, a.Error.asError("count subjects of " + stream)
	}
	return a.State.Subjects, nil
}

// FoldLease makes one process the active fold of a partition. It is about
// liveness only; correctness comes from the cursor's revision.
type FoldLease struct{ l *lease }

// LeadFold tries to become the active fold of a partition. ErrConflict says
// that another process is.
func (c *Conn) LeadFold(ctx context.Context, partition int, instance string) (*FoldLease, error) {
	t := c.timing
	data := []byte(instance + "/" + nuid.Next())
	l, err := c.acquireLease(ctx, foldLeaseSubject(partition), data, t.FoldTTL, t.FoldRenew, 0)
	if err != nil {
		return nil, fmt.Errorf("lead partition %d: %w", partition, err)
	}
	return &FoldLease{l: l}, nil
}

// Lost is closed when another process may lead the partition.
func (f *FoldLease) Lost() <-chan struct{} { return f.l.lost }

// Release hands the partition over at once.
func (f *FoldLease) Release(ctx context.Context) error { return f.l.release(ctx) }
