// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// stateWord is a job's state in words: "running", "partially failed".
func stateWord(s rackbusv1.JobState) string {
	if s == rackbusv1.JobState_JOB_STATE_UNSPECIFIED {
		return ""
	}
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(s.String(), "JOB_STATE_"), "_", " "))
}

// terminal says that a job has ended: the states from COMPLETED on are final.
func terminal(s rackbusv1.JobState) bool { return s >= rackbusv1.JobState_JOB_STATE_COMPLETED }

func stateField(s rackbusv1.JobState) field { return field{stateWord(s), stateStyle(s)} }

func stateStyle(s rackbusv1.JobState) style {
	switch s {
	case rackbusv1.JobState_JOB_STATE_COMPLETED:
		return good
	case rackbusv1.JobState_JOB_STATE_FAILED, rackbusv1.JobState_JOB_STATE_PARTIALLY_FAILED,
		rackbusv1.JobState_JOB_STATE_TERMINATED, rackbusv1.JobState_JOB_STATE_TIMED_OUT:
		return bad
	case rackbusv1.JobState_JOB_STATE_RUNNING:
		return busy
	case rackbusv1.JobState_JOB_STATE_QUEUED:
		return dim
	default:
		return odd
	}
}

// enumWord is the last part of an enum's name in small letters.
func enumWord(name fmt.Stringer, prefix string) string {
	return strings.ToLower(strings.TrimPrefix(name.String(), prefix))
}

// at is a moment as people write it, in their own time zone.
func at(ts *timestamppb.Timestamp) string {
	if ts == nil {
		return ""
	}
	return ts.AsTime().Local().Format("2006-01-02 15:04:05")
}

// ago is how long something is past.
func ago(now time.Time, ts *timestamppb.Timestamp) string {
	if ts == nil {
		return ""
	}
	return span(now.Sub(ts.AsTime()))
}

// span is a time of two units at most: 45s, 3m12s, 5h03m, 4d02h.
func span(d time.Duration) string {
	d = max(d, 0).Truncate(time.Second)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
	}
}

// took is how long a job has been at work, or was.
func took(now time.Time, j *rackbusv1.Job) string {
	if j.GetStartedAt() == nil {
		return ""
	}
	if j.GetFinishedAt() != nil {
		now = j.GetFinishedAt().AsTime()
	}
	return span(now.Sub(j.GetStartedAt().AsTime()))
}

// bytesWord is a size for people.
func bytesWord(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n)/unit, 0
	for ; f >= unit && i < len("KMGT")-1; i++ {
		f /= unit
	}
	return fmt.Sprintf("%.1f %ciB", f, "KMGT"[i])
}

// place is where a job works: rack/node, rack, or nothing.
func place(rack, node string) string {
	switch {
	case node == "":
		return rack
	case rack == "":
		return node
	}
	return rack + "/" + node
}

// typeWord is the stable name of a node's type.
func typeWord(t rackmanager.NodeType, d *rackmanager.NodeDescriptor) string {
	var descriptor *node.Descriptor
	if d != nil {
		descriptor = &node.Descriptor{Attributes: d.GetAttributes()}
	}
	if r, err := node.Resolve(int32(t), descriptor); err == nil {
		return r.Type.ID
	}
	return enumWord(t, "")
}

func okWord(ok bool) string {
	if ok {
		return "yes"
	}
	return "no"
}

// succeeded says that a body tells of success.
func succeeded(c rackmanager.ReturnCode) bool { return c == rackmanager.ReturnCode_RETURN_CODE_SUCCESS }

func resultField(c rackmanager.ReturnCode) field {
	if succeeded(c) {
		return field{"ok", good}
	}
	return field{"failed", bad}
}

func itoa[N int | uint32 | int64 | uint64](n N) string { return fmt.Sprint(n) }
