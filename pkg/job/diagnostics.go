// SPDX-License-Identifier: Apache-2.0

package job

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// Diagnostics is what a job of type node_diagnostics has found out. It is never
// changed after it was made, so records and events may share one.
type Diagnostics struct {
	// FailureSignature is a stable upper-case word for the pattern that was
	// recognised. It is apart from the FailureCode of any job.
	FailureSignature string
	// Summary is one line for people, Advice what to do about it.
	Summary    string
	Advice     string
	Collectors []CollectorOutcome
	// Evidence is nil when no bundle could be stored.
	Evidence *EvidenceBundle
}

// CollectorStatus is what became of one collector. The numbers are those of
// rackbus.v1.CollectorStatus.
type CollectorStatus uint8

const (
	// CollectorUnspecified is the status of a collector that did not run.
	CollectorUnspecified CollectorStatus = iota
	// CollectorCollected has what it was to collect.
	CollectorCollected
	// CollectorSkipped found that the node does not have it.
	CollectorSkipped
	// CollectorFailed could not read all of it.
	CollectorFailed

	collectorStatusCount
)

var collectorStatusNames = [collectorStatusCount]string{"unspecified", "collected", "skipped", "failed"}

// String returns the name of the status.
func (s CollectorStatus) String() string {
	if s < collectorStatusCount {
		return collectorStatusNames[s]
	}
	return "unknown"
}

// CollectorOutcome is what one collector of a diagnostics run did.
type CollectorOutcome struct {
	Name string
	// Required says that the run fails with the collector.
	Required bool
	Status   CollectorStatus
	Message  string
	Duration time.Duration
}

// EvidenceBundle is the file that a diagnostics run has left in the object store.
type EvidenceBundle struct {
	Filename    string
	ContentType string
	SizeBytes   int64
	SHA256      []byte
	WrittenAt   time.Time
}

// diagnosticsToProto returns the findings as a message, nil for nil.
func diagnosticsToProto(n *Diagnostics) *rackbusv1.NodeDiagnostics {
	if n == nil {
		return nil
	}
	m := &rackbusv1.NodeDiagnostics{
		FailureSignature: text(n.FailureSignature), Summary: text(n.Summary), Advice: text(n.Advice),
	}
	for i := range n.Collectors {
		c := &n.Collectors[i]
		m.Collectors = append(m.Collectors, &rackbusv1.CollectorOutcome{
			Name: text(c.Name), Required: c.Required, Status: rackbusv1.CollectorStatus(c.Status),
			Message: text(c.Message), Duration: durationpb.New(c.Duration),
		})
	}
	if e := n.Evidence; e != nil {
		m.Evidence = &rackbusv1.EvidenceBundle{
			Filename: text(e.Filename), ContentType: text(e.ContentType), SizeBytes: e.SizeBytes,
			Sha256: e.SHA256, WrittenAt: timestamp(e.WrittenAt),
		}
	}
	return m
}

func (d *decoder) diagnostics(m *rackbusv1.NodeDiagnostics) *Diagnostics {
	if m == nil {
		return nil
	}
	n := &Diagnostics{FailureSignature: m.GetFailureSignature(), Summary: m.GetSummary(), Advice: m.GetAdvice()}
	for _, c := range m.GetCollectors() {
		n.Collectors = append(n.Collectors, CollectorOutcome{
			Name: c.GetName(), Required: c.GetRequired(),
			Status:  CollectorStatus(d.enum("collector status", int32(c.GetStatus()), int32(collectorStatusCount))),
			Message: c.GetMessage(), Duration: c.GetDuration().AsDuration(),
		})
	}
	if e := m.GetEvidence(); e != nil {
		n.Evidence = &EvidenceBundle{
			Filename: e.GetFilename(), ContentType: e.GetContentType(), SizeBytes: e.GetSizeBytes(),
			SHA256: e.GetSha256(), WrittenAt: instant(e.GetWrittenAt()),
		}
	}
	return n
}
