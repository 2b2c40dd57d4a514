// SPDX-License-Identifier: Apache-2.0

package console

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

func TestRacksAreArrangedLikeRacks(t *testing.T) {
	var nodes []*rackmanager.NodeInventoryInfo
	add := func(n int, format string, typ rackmanager.NodeType, attributes map[string]string) {
		for i := n; i > 0; i-- {
			nodes = append(nodes, &rackmanager.NodeInventoryInfo{
				RackId: "r", NodeId: fmt.Sprintf(format, i), Type: typ,
				NodeDescriptor: &rackmanager.NodeDescriptor{Attributes: attributes},
			})
		}
	}
	add(18, "tray-%d", 0, map[string]string{"role": "compute", "vendor": "wiwynn", "product_family": "gb200"})
	add(9, "sw-%d", rackmanager.NodeType_SWITCH_GB200_NVIDIA, nil)
	add(8, "shelf-%d", rackmanager.NodeType_POWERSHELF_GB200_LITEON, nil)
	racks := arrange([]string{"rack-10", "r", "rack-9"}, nodes)
	require.Len(t, racks, 3, "a rack without nodes is one, too")
	require.Equal(t, []string{"r", "rack-9", "rack-10"}, []string{racks[0].ID, racks[1].ID, racks[2].ID})
	require.Equal(t, "GB200 NVL", racks[0].Model, "also of types that only a descriptor names")
	var order []string
	for _, s := range racks[0].Slots {
		order = append(order, s.ID)
	}
	require.Len(t, order, 35)
	require.Equal(t, []string{"shelf-1", "shelf-2", "shelf-3", "shelf-4", "tray-1"}, order[:5])
	require.Equal(t, []string{"tray-10", "sw-1"}, order[13:15])
	require.Equal(t, []string{"sw-9", "tray-11"}, order[22:24])
	require.Equal(t, []string{"tray-18", "shelf-5", "shelf-6", "shelf-7", "shelf-8"}, order[30:])
	require.Equal(t, kindSwitch, racks[0].Slots[14].Kind)
}

func TestNaturalOrder(t *testing.T) {
	want := []string{"", "a", "a-1", "a-02", "a-2", "a-10", "a-10-b", "a-10-c2", "a-10-c11", "b", "b9999999999999999999999", "b10000000000000000000000"}
	// Of equal numbers the one with fewer zeros comes first.
	want[3], want[4] = want[4], want[3]
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, natural)
	require.Equal(t, want, got)
	require.NotEqual(t, elementID("c", "a", "bc"), elementID("c", "ab", "c"))
}

func TestPicture(t *testing.T) {
	p := newPicture()
	status := func(node string) NodeStatus {
		if n := p.nodes[nodeKey{"rack-1", node}]; n != nil {
			return n.status
		}
		return NodeStatus{Status: StatusNone}
	}
	// A coordinator counts for every node that it keeps from others.
	reboot := update("c", "tray-1", running, 10)
	reboot.Kind, reboot.ReservedNodeIds = rackbusv1.JobKind_JOB_KIND_COORDINATOR, []string{"tray-1", "tray-2"}
	p.put(reboot)
	require.Equal(t, StatusWorking, status("tray-2").Status)
	require.Equal(t, status("tray-1"), status("tray-2"))
	moved := p.nodes[nodeKey{"rack-1", "tray-2"}].moved
	reboot.Percent = 20
	p.put(reboot)
	n := p.nodes[nodeKey{"rack-1", "tray-2"}]
	require.Equal(t, moved, n.moved, "progress is no other status")
	require.Greater(t, n.version, moved)

	// A family leaves as a whole, and the node is as it was without it.
	old := update("old", "tray-1", failed, 10)
	old.CreatedAt = timestamppb.New(epoch.Add(-time.Hour))
	p.put(old)
	child := update("f1", "tray-1", completed, 100)
	child.ParentJobId, child.CreatedAt = "f", timestamppb.New(epoch.Add(time.Hour))
	p.put(update("f", "", completed, 100))
	p.put(child)
	p.remove("c")
	require.Equal(t, StatusOK, status("tray-1").Status)
	p.remove("f")
	require.Equal(t, StatusFailed, status("tray-1").Status)
	p.remove("f1")
	require.Len(t, p.jobs, 1)
	require.Len(t, p.families, 1)
	require.Equal(t, StatusNone, status("tray-2").Status)
}

func TestTimeline(t *testing.T) {
	at := func(s int) *timestamppb.Timestamp { return timestamppb.New(epoch.Add(time.Duration(s) * time.Second)) }
	rows := stageRows([]*rackbusv1.JobStage{
		{Name: "a", Status: rackbusv1.StageStatus_STAGE_STATUS_COMPLETED, StartedAt: at(0), FinishedAt: at(0)},
		{Name: "b", Status: rackbusv1.StageStatus_STAGE_STATUS_RUNNING, StartedAt: at(50)},
		{Name: "c", Status: rackbusv1.StageStatus_STAGE_STATUS_QUEUED},
		{Name: "d", Status: rackbusv1.StageStatus_STAGE_STATUS_FAILED, StartedAt: at(100)},
	}, epoch.Add(100*time.Second))
	require.Equal(t, &bar{0, 4}, rows[0].Bar, "the shortest is still to be seen")
	require.Equal(t, &bar{500, 500}, rows[1].Bar, "what runs reaches until now")
	require.Equal(t, 50*time.Second, rows[1].Offset)
	require.Nil(t, rows[2].Bar)
	require.Equal(t, &bar{996, 4}, rows[3].Bar, "what was cut stays within the axis")
	require.Empty(t, stageRows(nil, epoch))
	for d, want := range map[time.Duration]string{
		-time.Second: "", 0: "0.0 s", 1500 * time.Millisecond: "1.5 s", 59 * time.Second: "59 s",
		125 * time.Second: "2 min 05 s", 3*time.Hour + 4*time.Minute: "3 h 04 min",
	} {
		require.Equal(t, want, took(d))
	}
}

// TestFleetIsSummedUp: a large fleet costs a live page no more than its racks.
func TestFleetIsSummedUp(t *testing.T) {
	var racks []rackView
	for _, status := range []Status{StatusOK, StatusFailed, StatusOK} {
		r := rackView{Cells: make([]cellView, 1000)}
		for i := range r.Cells {
			r.Cells[i].Status = status
		}
		r.Counts = countStatuses(r.Cells)
		racks = append(racks, r)
	}
	all := fleetView(racks)
	require.Equal(t, 2000, all.Of(StatusOK))
	require.Equal(t, 1000, all.Of(StatusFailed))
	require.Zero(t, all.Of(StatusWaiting))
	for _, c := range all.Counts {
		if c.Status == StatusOK {
			require.Equal(t, 1000, c.Before, "the failed ones come first")
		}
	}
	require.Empty(t, all.Cells)
}
