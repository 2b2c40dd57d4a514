// SPDX-License-Identifier: Apache-2.0

package console

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// nodeKey names a node.
type nodeKey struct{ rack, node string }

// nodeState is what is known of one node.
type nodeState struct {
	runs map[string]*Run
	// version is when anything of it changed, moved when its status did.
	version, moved uint64
	status         NodeStatus
}

// family is a top-level job with its children, which leave together.
type family struct {
	members map[string]struct{}
	version uint64
}

// trackedJob is a job and where it is shown.
type trackedJob struct {
	run     *Run
	version uint64
	nodes   []nodeKey
	family  string
}

// picture is all jobs at one moment.
type picture struct {
	jobs     map[string]*trackedJob
	families map[string]*family
	nodes    map[nodeKey]*nodeState
	version  uint64
}

func newPicture() *picture {
	return &picture{jobs: map[string]*trackedJob{}, families: map[string]*family{}, nodes: map[nodeKey]*nodeState{}}
}

// put takes a job in as it is now.
func (p *picture) put(j *rackbusv1.Job) {
	p.version++
	id := j.GetJobId()
	run := runOf(j)
	t := p.jobs[id]
	if t == nil {
		t = &trackedJob{family: familyOf(j)}
		p.jobs[id] = t
		f := p.families[t.family]
		if f == nil {
			f = &family{members: map[string]struct{}{}}
			p.families[t.family] = f
		}
		f.members[id] = struct{}{}
	}
	t.run, t.version = run, p.version
	p.families[t.family].version = p.version
	for _, key := range nodesOf(j) {
		n := p.nodes[key]
		if n == nil {
			n = &nodeState{runs: map[string]*Run{}}
			p.nodes[key] = n
		}
		if n.runs[id] == nil {
			t.nodes = append(t.nodes, key)
		}
		n.runs[id] = run
		p.judge(n)
	}
}

// remove forgets a family, named by any of its jobs.
func (p *picture) remove(id string) {
	t := p.jobs[id]
	if t == nil {
		return
	}
	p.version++
	for member := range p.families[t.family].members {
		for _, key := range p.jobs[member].nodes {
			n := p.nodes[key]
			delete(n.runs, member)
			p.judge(n)
		}
		delete(p.jobs, member)
	}
	delete(p.families, t.family)
}

// judge derives the status of a node anew.
func (p *picture) judge(n *nodeState) {
	history := make([]*Run, 0, len(n.runs))
	for _, r := range n.runs {
		history = append(history, r)
	}
	before := n.status.Status
	n.status, n.version = StatusOf(history), p.version
	if n.status.Status != before {
		n.moved = p.version
	}
}

func runOf(j *rackbusv1.Job) *Run {
	return &Run{
		ID: j.GetJobId(), ParentID: j.GetParentJobId(), Name: j.GetName(), Type: j.GetType(), RackID: j.GetRackId(),
		State: j.GetState(), Percent: j.GetPercent(), Description: j.GetStateDescription(),
		FailureCode: j.GetFailure().GetFailureCode(),
		CreatedAt:   timeOf(j.GetCreatedAt()), UpdatedAt: timeOf(j.GetUpdatedAt()),
	}
}

func familyOf(j *rackbusv1.Job) string {
	if parent := j.GetParentJobId(); parent != "" {
		return parent
	}
	return j.GetJobId()
}

// nodesOf are the nodes whose history a job belongs to: its own, and those that it
// keeps from others. A parent works on nothing itself.
func nodesOf(j *rackbusv1.Job) []nodeKey {
	if j.GetRackId() == "" {
		return nil
	}
	var keys []nodeKey
	if j.GetNodeId() != "" {
		keys = append(keys, nodeKey{j.GetRackId(), j.GetNodeId()})
	}
	for _, id := range j.GetReservedNodeIds() {
		if id != j.GetNodeId() {
			keys = append(keys, nodeKey{j.GetRackId(), id})
		}
	}
	return keys
}

// fleet follows all jobs. It is safe for concurrent use.
type fleet struct {
	jobs  rackbusv1.JobsClient
	retry time.Duration
	log   *slog.Logger

	mu      sync.Mutex
	now     *picture
	ready   chan struct{} // closed with the first picture
	changed chan struct{} // closed and replaced with every change
	// life is which picture versions count in; a new one begins when the old one cannot
	// be continued.
	life string
	born int
}

func newFleet(jobs rackbusv1.JobsClient, retry time.Duration, log *slog.Logger) *fleet {
	return &fleet{jobs: jobs, retry: retry, log: log, now: newPicture(), ready: make(chan struct{}), changed: make(chan struct{})}
}

// run follows the jobs until ctx ends.
func (f *fleet) run(ctx context.Context) {
	token := ""
	for ctx.Err() == nil {
		err := f.follow(ctx, &token)
		if ctx.Err() != nil {
			return
		}
		switch status.Code(err) {
		case codes.FailedPrecondition, codes.InvalidArgument: // the token is of no use any more
			token = ""
		default:
		}
		f.log.InfoContext(ctx, "console follows the jobs anew", "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(f.retry):
		}
	}
}

// follow reads one watch to its end. It leaves in token with what to go on.
func (f *fleet) follow(ctx context.Context, token *string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := f.jobs.WatchJobs(ctx, &rackbusv1.WatchJobsRequest{ResumeToken: *token})
	if err != nil {
		return fmt.Errorf("watch jobs: %w", err)
	}
	// A snapshot is taken in apart, so that nobody sees half of it.
	var fresh *picture
	if *token == "" {
		fresh = newPicture()
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("watch jobs: %w", err)
		}
		switch {
		case m.GetSnapshotComplete():
			if fresh != nil {
				f.begin(fresh)
				fresh = nil
			}
		case fresh != nil:
			if m.GetJob() != nil && !m.GetRemoved() {
				fresh.put(m.GetJob())
			}
		default:
			f.apply(m)
		}
		// A token from the middle of a snapshot would skip the rest of it.
		if fresh == nil {
			*token = m.GetResumeToken()
		}
	}
}

func (f *fleet) begin(fresh *picture) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.born++
	f.life = strconv.FormatInt(time.Now().UnixNano(), 36) + "." + strconv.Itoa(f.born)
	f.now = fresh
	select {
	case <-f.ready:
	default:
		close(f.ready)
	}
	f.tell()
}

func (f *fleet) apply(m *rackbusv1.WatchJobsResponse) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m.GetRemoved() {
		f.now.remove(m.GetJob().GetJobId())
	} else if m.GetJob() != nil {
		f.now.put(m.GetJob())
	}
	f.tell()
}

func (f *fleet) tell() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// await waits for the first picture.
func (f *fleet) await(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case <-f.ready:
		return nil
	case <-ctx.Done():
		return status.Error(codes.Unavailable, "the list of jobs is still being read; try again in a moment")
	}
}

// mark is a point in the life of the picture, as browsers keep it.
type mark struct {
	life    string
	version uint64
}

func (m mark) String() string { return m.life + "-" + strconv.FormatUint(m.version, 10) }

// parseMark reads a mark; what is none gives one of no life.
func parseMark(text string) mark {
	life, version, ok := strings.Cut(text, "-")
	n, err := strconv.ParseUint(version, 10, 64)
	if !ok || err != nil {
		return mark{}
	}
	return mark{life, n}
}

// mark returns the present moment, and a channel that is closed when it has passed.
func (f *fleet) mark() (mark, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return mark{f.life, f.now.version}, f.changed
}

// node returns the status of a node, and its runs, newest first.
func (f *fleet) node(key nodeKey) (NodeStatus, []*Run) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.now.nodes[key]
	if n == nil {
		return NodeStatus{Status: StatusNone}, nil
	}
	runs := make([]*Run, 0, len(n.runs))
	for _, r := range n.runs {
		runs = append(runs, r)
	}
	return n.status, sortRuns(runs)
}

// nodeView is the status of a node, when anything of it changed, and when its status
// did.
type nodeView struct {
	NodeStatus
	version, moved uint64
}

// snapshot returns all nodes of which any job is known or was, and the moment.
func (f *fleet) snapshot() (map[nodeKey]nodeView, mark) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make(map[nodeKey]nodeView, len(f.now.nodes))
	for key, n := range f.now.nodes {
		all[key] = nodeView{n.status, n.version, n.moved}
	}
	return all, mark{f.life, f.now.version}
}

// jobChanged reports whether a job, or one of its children, has changed after a
// version. One that is gone has.
func (f *fleet) jobChanged(id string, version uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fam := f.now.families[id]; fam != nil {
		return fam.version > version
	}
	t := f.now.jobs[id]
	return t == nil || t.version > version
}
