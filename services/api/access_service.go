// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/access"
	"github.com/rackbus/rackbus/pkg/bus"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// maxAuditScan is how many records one call looks at. When few of them fit, the
// page is short and its token leads on.
const maxAuditScan = 20_000

// auditSlack is how much later than its call a record can be stored.
const auditSlack = 2 * time.Minute

// accessService is rackbus.v1.Access.
type accessService struct {
	rackbusv1.UnimplementedAccessServer
	*Server
}

// WhoAmI tells how the service sees the caller.
func (a *accessService) WhoAmI(ctx context.Context, _ *rackbusv1.WhoAmIRequest) (*rackbusv1.WhoAmIResponse, error) {
	p, _ := access.FromContext(ctx)
	return &rackbusv1.WhoAmIResponse{Identity: p.Identity, Role: rackbusv1.Role(p.Role)}, nil
}

// ListAuditRecords pages through what callers have changed, newest first.
func (a *accessService) ListAuditRecords(ctx context.Context, req *rackbusv1.ListAuditRecordsRequest) (*rackbusv1.ListAuditRecordsResponse, error) {
	page, err := newAuditPage(req, a.answerBudget())
	if err != nil {
		return nil, err
	}
	err = a.ride(ctx, func(ctx context.Context) error {
		page.reset()
		return a.opts.Conn.AuditRecords(ctx, page.bounds, page.take)
	})
	if err != nil {
		return nil, err
	}
	return page.resp, nil
}

// auditPage collects the records of one page.
type auditPage struct {
	req          *rackbusv1.ListAuditRecordsRequest
	since, until time.Time
	bounds       bus.AuditRange
	size, budget int

	resp          *rackbusv1.ListAuditRecordsResponse
	seen, scanned int // bytes taken, records looked at
}

func newAuditPage(req *rackbusv1.ListAuditRecordsRequest, budget int) (*auditPage, error) {
	p := &auditPage{req: req, budget: budget, size: int(min(req.GetPageSize(), maxPage))}
	if p.size == 0 {
		p.size = defaultPage
	}
	if token := req.GetPageToken(); token != "" {
		n, err := strconv.ParseUint(token, 10, 64)
		if err != nil || n == 0 {
			return nil, errorf(CodeInvalidArgument, "page_token is not one of an earlier answer")
		}
		p.bounds.Before = n
	}
	for _, b := range []struct {
		name string
		from *timestamppb.Timestamp
		to   *time.Time
	}{{"since", req.GetSince(), &p.since}, {"until", req.GetUntil(), &p.until}} {
		if b.from == nil {
			continue
		}
		if err := b.from.CheckValid(); err != nil {
			return nil, errorf(CodeInvalidArgument, "%s is no moment", b.name)
		}
		*b.to = b.from.AsTime()
	}
	if !p.until.IsZero() {
		p.bounds.Stored = p.until.Add(auditSlack)
	}
	p.reset()
	return p, nil
}

// reset begins again, after a try that was cut off.
func (p *auditPage) reset() {
	p.resp, p.seen, p.scanned = &rackbusv1.ListAuditRecordsResponse{}, 0, 0
}

// take looks at one record and tells whether more are wanted.
func (p *auditPage) take(r *rackbusv1.AuditRecord) bool {
	at := r.GetAt().AsTime()
	if !p.since.IsZero() && at.Before(p.since.Add(-auditSlack)) {
		return false // none of the older ones fits
	}
	wanted := p.fits(r, at)
	if size := sizeOf(r); wanted {
		if full := len(p.resp.Records) == p.size; full || p.seen+size > p.budget && len(p.resp.Records) > 0 {
			return p.endBefore(r.GetSequence() + 1)
		}
		p.resp.Records = append(p.resp.Records, r)
		p.seen += size
	}
	if p.scanned++; p.scanned == maxAuditScan {
		return p.endBefore(r.GetSequence())
	}
	return true
}

// endBefore ends the page; the next begins below the sequence.
func (p *auditPage) endBefore(sequence uint64) bool {
	if sequence > 1 {
		p.resp.NextPageToken = strconv.FormatUint(sequence, 10)
	}
	return false
}

func (p *auditPage) fits(r *rackbusv1.AuditRecord, at time.Time) bool {
	q := p.req
	switch {
	case !p.since.IsZero() && at.Before(p.since), !p.until.IsZero() && !at.Before(p.until),
		q.GetIdentity() != "" && q.GetIdentity() != r.GetIdentity(),
		q.GetJobId() != "" && q.GetJobId() != r.GetJobId() && !strings.Contains(r.GetAttributes()[besideJobs], q.GetJobId()),
		q.GetRpc() != "" && q.GetRpc() != r.GetRpc() && !strings.HasSuffix(r.GetRpc(), "/"+q.GetRpc()):
		return false
	case q.GetRackId() == "" && q.GetNodeId() == "":
		return true
	}
	for _, n := range r.GetNodes() {
		if (q.GetRackId() == "" || q.GetRackId() == n.GetRackId()) && (q.GetNodeId() == "" || q.GetNodeId() == n.GetNodeId()) {
			return true
		}
	}
	return false
}
