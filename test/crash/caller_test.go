// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/test/cluster"
)

const (
	// callLimit is the limit of one call, that of the published clients.
	callLimit = 10 * time.Second
	// retryPause lets a replica come back.
	retryPause = 50 * time.Millisecond
	// pollPause is the pause between two looks at a job.
	pollPause = 100 * time.Millisecond
)

// idempotencyKey is the metadata with which a repeated call means the same jobs.
const idempotencyKey = "rackbus-idempotency-key"

// caller is a client that does not care which replica answers, and asks again when none does.
type caller struct {
	clients []*cluster.Client
	next    atomic.Uint64
	retries *atomic.Int64
}

// lasting reports whether an answer will not change by asking again.
func lasting(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Aborted, codes.Canceled:
		return false
	default:
		return true
	}
}

// call asks one replica after the other until one gives a lasting answer. With a key, all of them mean the same.
func call[Req, Res any](ctx context.Context, c *caller, key string, req Req, ask func(*cluster.Client, context.Context, Req) (Res, error)) (Res, error) {
	if key != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, idempotencyKey, key)
	}
	for {
		client := c.clients[int(c.next.Add(1))%len(c.clients)]
		limited, cancel := context.WithTimeout(ctx, callLimit)
		answer, err := ask(client, limited, req)
		cancel()
		if err == nil || lasting(err) {
			return answer, err
		}
		if ctx.Err() != nil {
			return answer, fmt.Errorf("no replica answers: %w", err)
		}
		c.retries.Add(1)
		wait(ctx, retryPause)
	}
}

// assignment is one node's job as the caller was told.
type assignment struct {
	node string
	job  string
}

// updateOne starts the update of one registered node.
func (c *caller) updateOne(ctx context.Context, rack, node, file, key string) (assignment, error) {
	req := &rackmanager.UpdateFirmwareRequest{RackId: rack, NodeId: node, Filename: file, Activate: true}
	answer, err := call(ctx, c, key, req, func(cl *cluster.Client, ctx context.Context, req *rackmanager.UpdateFirmwareRequest) (*rackmanager.UpdateFirmwareResponse, error) {
		return cl.UpdateFirmware(ctx, req)
	})
	if err != nil {
		return assignment{}, fmt.Errorf("update %s: %w", node, err)
	}
	if answer.GetJobId() == "" {
		return assignment{}, fmt.Errorf("update %s refused: %s", node, answer.GetMessage())
	}
	return assignment{node, answer.GetJobId()}, nil
}

// updateBatch starts the update of nodes that the request describes. It returns the parent and the children.
func (c *caller) updateBatch(ctx context.Context, req *rackmanager.BatchUpdateFirmwareRequest, key string) (string, []assignment, error) {
	answer, err := call(ctx, c, key, req, func(cl *cluster.Client, ctx context.Context, req *rackmanager.BatchUpdateFirmwareRequest) (*rackmanager.BatchUpdateFirmwareResponse, error) {
		return cl.BatchUpdateFirmware(ctx, req)
	})
	if err != nil {
		return "", nil, fmt.Errorf("update %d nodes: %w", len(req.GetNodes().GetNodes()), err)
	}
	var out []assignment
	for _, j := range answer.GetJobs() {
		out = append(out, assignment{j.GetNodeId(), j.GetJobId()})
	}
	return answer.GetResponse().GetJobId(), out, refusals(answer.GetResponse())
}

func refusals(b *rackmanager.NodeBatchResponse) error {
	if b.GetStatus() == rackmanager.ReturnCode_RETURN_CODE_SUCCESS {
		return nil
	}
	told := b.GetMessage()
	for _, r := range b.GetNodeResults() {
		if r.GetStatus() != rackmanager.ReturnCode_RETURN_CODE_SUCCESS {
			told += fmt.Sprintf("; %s: %s", r.GetNodeId(), r.GetErrorMessage())
		}
	}
	return fmt.Errorf("batch %s not admitted as a whole: %s", b.GetJobId(), told)
}

// follow polls a job until it has ended. A job that was answered is never unknown, and never goes backwards.
func (c *caller) follow(ctx context.Context, id string) (*rackmanager.JobStatus, error) {
	var last rackmanager.JobExecutionState
	for {
		answer, err := call(ctx, c, "", &rackmanager.GetJobStatusRequest{JobId: id},
			func(cl *cluster.Client, ctx context.Context, req *rackmanager.GetJobStatusRequest) (*rackmanager.GetJobStatusResponse, error) {
				return cl.GetJobStatus(ctx, req)
			})
		if err != nil {
			return nil, fmt.Errorf("status of job %s after %s: %w", id, last, err)
		}
		s := answer.GetJobStates()[0]
		if s.GetExecutionState() < last {
			return nil, fmt.Errorf("job %s went from %s to %s", id, last, s.GetExecutionState())
		}
		last = s.GetExecutionState()
		if cluster.Ended(last) {
			return s, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("job %s is still %s: %s", id, last, s.GetStateDescription())
		}
		wait(ctx, pollPause)
	}
}

// shuffled returns the nodes in random order.
func shuffled(r *rand.Rand, nodes []string) []string {
	out := append([]string{}, nodes...)
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}
