// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// subjectsPage is how many subjects the broker names in one answer.
const subjectsPage = 100_000

// Lock is a node's lock with the revision to expect when it is changed. A node
// that was never locked has the revision Absent.
type Lock struct {
	*rackbusv1.NodeLock
	Revision Revision
}

// Free reports whether the node can be taken at the given moment. A synchronous
// operation holds it until its deadline.
func (l Lock) Free(now time.Time) bool {
	if l.NodeLock == nil || l.GetJobId() == "" && l.GetOperation() == "" {
		return true
	}
	return l.GetJobId() == "" && !now.Before(l.GetDeadline().AsTime())
}

// Holder names what holds the node, for messages: a job id or an operation.
func (l Lock) Holder() string {
	if id := l.GetJobId(); id != "" {
		return id
	}
	return l.GetOperation()
}

// Lock reads a node's lock at the leader.
func (c *Conn) Lock(ctx context.Context, ref node.Ref) (Lock, error) {
	s, err := c.leaderGet(ctx, streamState, lockSubject(ref))
	if errors.Is(err, ErrNotFound) {
		return Lock{}, nil
	}
	if err != nil {
		return Lock{}, err
	}
	return lockOf(s)
}

// Locks reads the locks of many nodes, which on a replica may be some
// milliseconds old: a transaction notices by the revision. The result has the
// order of refs.
func (c *Conn) Locks(ctx context.Context, refs []node.Ref) ([]Lock, error) {
	subjects := make([]string, len(refs))
	for i, r := range refs {
		subjects[i] = lockSubject(r)
	}
	found, err := c.multiGet(ctx, streamState, subjects, 0)
	if err != nil {
		return nil, err
	}
	locks := make([]Lock, len(refs))
	for i, subject := range subjects {
		s, ok := found[subject]
		if !ok {
			continue
		}
		if locks[i], err = lockOf(s); err != nil {
			return nil, err
		}
	}
	return locks, nil
}

func lockOf(s stored) (Lock, error) {
	if s.expired() {
		return Lock{Revision: s.rev}, nil
	}
	l := &rackbusv1.NodeLock{}
	if err := proto.Unmarshal(s.data, l); err != nil {
		return Lock{}, fmt.Errorf("decode lock %s: %w", s.subject, err)
	}
	return Lock{NodeLock: l, Revision: s.rev}, nil
}

// Capacity reads the counter of tracked records.
func (c *Conn) Capacity(ctx context.Context) (records int64, rev Revision, err error) {
	var v rackbusv1.JobCapacity
	rev, err = c.getProto(ctx, streamState, subjCapacity, &v)
	if errors.Is(err, ErrNotFound) {
		return 0, rev, nil
	}
	return v.GetRecords(), rev, err
}

// CorrectCapacity replaces the counter of tracked records after a recount.
// ErrConflict says that it has moved meanwhile.
func (c *Conn) CorrectCapacity(ctx context.Context, records int64, expect Revision) error {
	_, err := c.putProto(ctx, subjCapacity, &rackbusv1.JobCapacity{V: 1, Records: records}, &expect, 0)
	return err
}

// Cursor reads the last event sequence a partition has folded.
func (c *Conn) Cursor(ctx context.Context, partition int) (sequence uint64, rev Revision, err error) {
	var v rackbusv1.FoldCursor
	rev, err = c.getProto(ctx, streamState, cursorSubject(partition), &v)
	if errors.Is(err, ErrNotFound) {
		return 0, rev, nil
	}
	return v.GetSequence(), rev, err
}

// Record reads a job's record at the leader. A family whose retention has ended
// is ErrNotFound as a whole, even while its records are being removed.
func (c *Conn) Record(ctx context.Context, id job.ID) (job.Record, Revision, error) {
	data, rev, err := c.get(ctx, streamState, recordSubject(id))
	if err != nil {
		return job.Record{}, 0, err
	}
	r, err := job.UnmarshalRecord(data)
	if err != nil {
		return job.Record{}, 0, fmt.Errorf("decode record of job %s: %w", id, err)
	}
	if r.State.Terminal() {
		gone, err := c.Gone(ctx, id)
		if err != nil {
			return job.Record{}, 0, err
		}
		if gone {
			return job.Record{}, 0, fmt.Errorf("job %s: %w: its retention has ended", id, ErrNotFound)
		}
	}
	return r, rev, nil
}

// Records reads many records of jobs; missing ones are absent from the result.
// A replica that has not applied atLeast yet is not believed.
func (c *Conn) Records(ctx context.Context, ids []job.ID, atLeast Revision) (map[job.ID]job.Record, error) {
	subjects := make([]string, len(ids))
	for i, id := range ids {
		subjects[i] = recordSubject(id)
	}
	found, err := c.multiGet(ctx, streamState, subjects, atLeast)
	if err != nil {
		return nil, err
	}
	out := make(map[job.ID]job.Record, len(found))
	for i, id := range ids {
		s, ok := found[subjects[i]]
		if !ok || s.expired() {
			continue
		}
		r, err := job.UnmarshalRecord(s.data)
		if err != nil {
			return nil, fmt.Errorf("decode record of job %s: %w", id, err)
		}
		out[id] = r
	}
	return out, nil
}

// Admission reads the nodes of a batch that got no job; none is not an error.
func (c *Conn) Admission(ctx context.Context, id job.ID) (*rackbusv1.AdmissionRecord, error) {
	v := &rackbusv1.AdmissionRecord{}
	_, err := c.getProto(ctx, streamState, admissionSubject(id), v)
	if errors.Is(err, ErrNotFound) {
		return v, nil
	}
	return v, err
}

// Gone reports whether the retention of a job's family has ended.
func (c *Conn) Gone(ctx context.Context, id job.ID) (bool, error) {
	_, _, err := c.get(ctx, streamState, goneSubject(id))
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Idempotency reads what a caller's key has created; ErrNotFound when nothing.
func (c *Conn) Idempotency(ctx context.Context, key string) (*rackbusv1.JobIdempotency, error) {
	v := &rackbusv1.JobIdempotency{}
	_, err := c.getProto(ctx, streamState, subjIdemPrefix+key, v)
	return v, err
}

// Command reads the command that is stored for a node, with its revision.
// ErrNotFound when there is none.
func (c *Conn) Command(ctx context.Context, family node.Family, ref node.Ref) (*rackbusv1.JobCommand, Revision, error) {
	v := &rackbusv1.JobCommand{}
	rev, err := c.getProto(ctx, streamState, commandSubject(family, ref), v)
	return v, rev, err
}

// DropIdempotency forgets a key whose job has been reaped.
func (c *Conn) DropIdempotency(ctx context.Context, key string) error {
	return c.purge(ctx, streamState, subjIdemPrefix+key)
}

// ParkedCommand reads a command that waits behind the job that holds its node.
// ErrNotFound says that it is lost.
func (c *Conn) ParkedCommand(ctx context.Context, ref node.Ref, id job.ID) (*rackbusv1.JobCommand, error) {
	v := &rackbusv1.JobCommand{}
	_, err := c.getProto(ctx, streamState, parkSubject(ref, id), v)
	return v, err
}

// DropParked removes a parked command that has been promoted or given up.
func (c *Conn) DropParked(ctx context.Context, ref node.Ref, id job.ID) error {
	return c.purge(ctx, streamState, parkSubject(ref, id))
}

// EraseCommand overwrites and deletes a command by its sequence, so that its
// sealed content does not outlive the job. By subject it would hit the next
// job's command. The sequence comes from an agent, which must not be able to
// have anything else erased: what is no command stays.
func (c *Conn) EraseCommand(ctx context.Context, rev Revision) error {
	m, err := c.leaderRead(ctx, streamState, map[string]any{"seq": uint64(rev)}, "look up command")
	if err == nil {
		if !strings.HasPrefix(m.subject, subjCmdPrefix) {
			return fmt.Errorf("erase command %d: %w: it is %s", rev, ErrNotCommand, m.subject)
		}
		err = c.eraseMessage(ctx, streamState, rev)
	}
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// PurgeFamily removes the records of a reaped family and what belongs to them.
func (c *Conn) PurgeFamily(ctx context.Context, id job.ID) error {
	return errors.Join(
		c.purge(ctx, streamState, familySubjects(id)),
		c.purge(ctx, streamState, admissionSubject(id)),
	)
}

// HoldSync takes a node's lock for a synchronous operation until deadline.
// ErrConflict says that the node was taken meanwhile.
func (c *Conn) HoldSync(ctx context.Context, ref node.Ref, l *rackbusv1.NodeLock, expect Revision, ttl time.Duration) (Revision, error) {
	return c.putProto(ctx, lockSubject(ref), l, &expect, ttl)
}

// ReleaseSync frees a node taken with HoldSync, if it is still held by it.
func (c *Conn) ReleaseSync(ctx context.Context, ref node.Ref, held Revision) error {
	_, err := c.putProto(ctx, lockSubject(ref), &rackbusv1.NodeLock{V: 1}, &held, freeLockTTL)
	if errors.Is(err, ErrConflict) {
		return nil
	}
	return err
}

// TakeRackPower takes a rack's power guard until it expires or is released.
// ErrConflict says that another power operation holds it.
func (c *Conn) TakeRackPower(ctx context.Context, rackID string, v *rackbusv1.RackPower, ttl time.Duration) (Revision, error) {
	data, err := proto.Marshal(v)
	if err != nil {
		return 0, fmt.Errorf("encode rack power guard: %w", err)
	}
	return c.create(ctx, streamState, rackPowerSubject(rackID), data, ttl)
}

// RackPower reads a rack's power guard; ErrNotFound when it is free.
func (c *Conn) RackPower(ctx context.Context, rackID string) (*rackbusv1.RackPower, error) {
	v := &rackbusv1.RackPower{}
	_, err := c.getProto(ctx, streamState, rackPowerSubject(rackID), v)
	return v, err
}

// ReleaseRackPower releases the guard taken under a revision.
func (c *Conn) ReleaseRackPower(ctx context.Context, held Revision) error {
	err := c.eraseMessage(ctx, streamState, held)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// TopLevelRecords gives the record of every job without a parent to each.
func (c *Conn) TopLevelRecords(ctx context.Context, each func(job.Record)) error {
	return c.replay(ctx, streamState, subjJobPrefix+"*.00000000", jetstream.DeliverLastPerSubjectPolicy,
		func(m jetstream.Msg, _ *jetstream.MsgMetadata) (bool, error) {
			if m.Headers().Get(hdrMarker) != "" {
				return true, nil
			}
			r, err := job.UnmarshalRecord(m.Data())
			if err != nil {
				return false, fmt.Errorf("decode %s: %w", m.Subject(), err)
			}
			each(r)
			return true, nil
		})
}

// CountRecords counts the records in the state stream, to correct the counter.
// Those of a family that was marked as gone left the counter with the mark, so
// they do not count even while they wait to be purged.
func (c *Conn) CountRecords(ctx context.Context) (int64, error) {
	records, err := c.listSubjects(ctx, streamState, subjJobPrefix+">")
	if err != nil {
		return 0, err
	}
	marks, err := c.listSubjects(ctx, streamState, subjGonePrefix+">")
	if err != nil {
		return 0, err
	}
	gone := make(map[string]bool, len(marks))
	for _, subject := range marks {
		gone[strings.TrimPrefix(subject, subjGonePrefix)] = true
	}
	var count int64
	for _, subject := range records {
		if family, _, _ := strings.Cut(strings.TrimPrefix(subject, subjJobPrefix), "."); !gone[family] {
			count++
		}
	}
	return count, nil
}

// CountFamily counts the records of one family.
func (c *Conn) CountFamily(ctx context.Context, id job.ID) (int64, error) {
	return c.countSubjects(ctx, streamState, familySubjects(id))
}

// ScanRecords gives the records of one event partition to each, in no order. A
// replica that has not applied atLeast yet is not believed; what has changed later
// may be some milliseconds old.
func (c *Conn) ScanRecords(ctx context.Context, partition int, atLeast Revision, each func(job.Record)) error {
	subjects, err := c.listSubjects(ctx, streamState, subjJobPrefix+">")
	if err != nil {
		return err
	}
	mine := subjects[:0]
	for _, subject := range subjects {
		prefix, _, _ := strings.Cut(strings.TrimPrefix(subject, subjJobPrefix), ".")
		if id, err := familyOf(prefix); err == nil && id.Partition(Partitions) == partition {
			mine = append(mine, subject)
		}
	}
	for start := 0; start < len(mine); start += multiGetSubjects {
		found, err := c.multiGet(ctx, streamState, mine[start:min(start+multiGetSubjects, len(mine))], atLeast)
		if err != nil {
			return err
		}
		for subject, s := range found {
			if s.expired() {
				continue
			}
			r, err := job.UnmarshalRecord(s.data)
			if err != nil {
				return fmt.Errorf("decode %s: %w", subject, err)
			}
			each(r)
		}
	}
	return nil
}

func (c *Conn) countSubjects(ctx context.Context, stream, filter string) (int64, error) {
	subjects, err := c.listSubjects(ctx, stream, filter)
	return int64(len(subjects)), err
}

// listSubjects asks the leader for the subjects that have messages.
func (c *Conn) listSubjects(ctx context.Context, stream, filter string) ([]string, error) {
	var all []string
	for {
		req, err := json.Marshal(map[string]any{"subjects_filter": filter, "offset": len(all)})
		if err != nil {
			return nil, fmt.Errorf("encode request: %w", err)
		}
		page, err := c.subjectCounts(ctx, stream, req)
		if err != nil {
			return nil, err
		}
		for subject := range page {
			all = append(all, subject)
		}
		if len(page) < subjectsPage {
			return all, nil
		}
	}
}

func (c *Conn) getProto(ctx context.Context, stream, subject string, v proto.Message) (Revision, error) {
	data, rev, err := c.get(ctx, stream, subject)
	if err != nil {
		return rev, err
	}
	if err := proto.Unmarshal(data, v); err != nil {
		return rev, fmt.Errorf("decode %s: %w", subject, err)
	}
	return rev, nil
}

func (c *Conn) putProto(ctx context.Context, subject string, v proto.Message, expect *Revision, ttl time.Duration) (Revision, error) {
	data, err := proto.Marshal(v)
	if err != nil {
		return 0, fmt.Errorf("encode %s: %w", subject, err)
	}
	return c.put(ctx, subject, data, expect, ttl)
}
