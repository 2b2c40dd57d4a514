// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

var (
	// ErrKeyReused says that an idempotency key was used before for another request.
	ErrKeyReused = errors.New("the idempotency key was used before with another request")
	// ErrClosed says that the Admitter was closed.
	ErrClosed = errors.New("admission: closed")
)

// Idempotency makes a repeated request find the job of the first one. The zero
// value stands for a request without a key.
type Idempotency struct {
	// Caller and RPC separate the keys of different clients and calls.
	Caller string
	RPC    string
	Key    string
	// Digest of the request, without secrets.
	Digest []byte
}

// storeKey is the key under which the broker remembers it, "" for none.
func (i Idempotency) storeKey() string {
	if i.Key == "" {
		return ""
	}
	h := sha256.New()
	var size [8]byte
	for _, part := range [...]string{i.Caller, i.RPC, i.Key} {
		binary.BigEndian.PutUint64(size[:], uint64(len(part)))
		h.Write(size[:])
		h.Write([]byte(part))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Node is one selected node of a request.
type Node struct {
	Ref    node.Ref
	Family node.Family
	// Refusal is why the caller refuses the node already; nil admits it.
	Refusal *Refusal
	// Command returns what the agent is asked to do: the target and the
	// operation. Ids, type, family and times are filled in by the admission. It
	// may be called again for another id after a lost race.
	Command func(id job.ID) (*rackbusv1.JobCommand, error)
	// About is the job that the new one looks into, for node diagnostics.
	About job.ID
	// Domain is the switch domain of the operation, for a rollout that counts by
	// domain; empty without one.
	Domain string
	// Ended, when set, is the job's outcome, in place of a Command. A node that is
	// busy is refused all the same, and never waited for.
	Ended *Ended
}

// Request asks for jobs of one type.
type Request struct {
	Type job.Type
	// Name is for people; one is derived when it is empty.
	Name string
	// RackID of the parent; empty when the batch spans racks.
	RackID string
	OnBusy OnBusy
	// Deadline is when the jobs must have ended, when it is set: a job that has not
	// started by then times out, and one that has is stopped. It shortens the limits
	// for waiting and running, and cannot lengthen them: a deadline that lies behind
	// what is configured counts for nothing.
	Deadline    time.Time
	Idempotency Idempotency
	// NothingAdmitted is the message of a parent without any child.
	NothingAdmitted string
	// Cleanup are the directories below the firmware directory that are removed
	// once the whole job has ended; see job.CheckCleanup. Without a new job, after
	// an error or when an earlier one is replayed, they are the caller's.
	Cleanup []string
	// MinRun is how long the job must be allowed to run, whatever the limit of its
	// type; a nearer Deadline counts all the same.
	MinRun time.Duration
	// About is the job that the batch as a whole looks into, for node diagnostics.
	About job.ID
	// Rollout lets the children of a batch start in waves; nil starts them all at
	// once. The batch takes its nodes from the start, and its Deadline is until when
	// all must have started.
	Rollout *job.RolloutPlan
	// Reserve is for AdmitCoordinator only.
	Reserve *Reservation
	Nodes   []Node
}

func (r *Request) refs() []node.Ref {
	refs := make([]node.Ref, len(r.Nodes))
	for i := range r.Nodes {
		refs[i] = r.Nodes[i].Ref
	}
	return refs
}

// Refusal says why a node, or a whole request, got no job.
type Refusal struct {
	Code    job.FailureCode
	Message string
	// Holder is the job that holds a busy node.
	Holder job.ID
}

// Error returns the message for people.
func (r *Refusal) Error() string { return r.Message }

// NodeResult is what became of one node: a job, or a refusal. A superseding job
// that lost its race against the start of the old one has both.
type NodeResult struct {
	Ref     node.Ref
	JobID   job.ID
	Refusal *Refusal
}

// Result is the outcome of an admission, with the nodes in request order.
type Result struct {
	// JobID is the parent's, or the only job's.
	JobID job.ID
	Nodes []NodeResult
	// Replayed says that the idempotency key has found an earlier admission.
	Replayed bool
}

// Admitted is how many nodes got a job.
func (r *Result) Admitted() int {
	n := 0
	for i := range r.Nodes {
		if r.Nodes[i].Refusal == nil {
			n++
		}
	}
	return n
}

// BusyRefusal returns why a node whose lock was read is not free, nil when it is.
func BusyRefusal(ref node.Ref, l bus.Lock, now time.Time) *Refusal {
	if l.Free(now) {
		return nil
	}
	r := &Refusal{Code: job.FailureNodeBusy}
	if l.GetJobId() == "" {
		r.Message = job.BusyOperationText(ref.RackID, ref.NodeID, l.GetOperation())
		return r
	}
	holder, err := job.ParseID(l.GetJobId())
	if err != nil {
		r.Message = job.BusyOperationText(ref.RackID, ref.NodeID, fmt.Sprintf("job %q", l.GetJobId()))
		return r
	}
	r.Holder, r.Message = holder, job.BusyText(ref.RackID, ref.NodeID, holder)
	return r
}
