// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/artifacts"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/reqlog"
	"github.com/rackbus/rackbus/test/cluster"
)

// releasePatience is the limit of the work on a whole rack.
const releasePatience = 4 * time.Minute

// refusedImage is the message id of a device that does not take an image.
const refusedImage = "Update.1.0.VerificationFailed"

// refuseImages makes the tasks of a tray end with refusedImage.
func refuseImages(d *sim.Device) {
	d.UpdateKnobs(func(k *bmc.Knobs) {
		k.TaskEnd = &bmc.TaskEnd{Messages: []bmc.Message{{
			ID: refusedImage, Text: "The image could not be verified.", Severity: "Critical",
			Resolution: "Use an image signed for this tray.",
		}}}
	})
}

// mixedTypes are all node types but switches.
func mixedTypes() []string {
	var out []string
	for _, t := range node.Types() {
		if t.Family != node.FamilySwitch {
			out = append(out, t.ID)
		}
	}
	return out
}

// mixedRack is a rack with one device of each type, and two more trays: one that another job works on, and one that
// refuses what it is sent.
type mixedRack struct {
	*scene
	firmware      rackbusv1.FirmwareClient
	rack          *sim.Rack
	files         *artifacts.Server
	busy, failing *sim.Device
	// holder is the job that works on the busy tray.
	holder string
	first  release
	second release
}

// TestMixedRack brings two releases of a manifest to a rack of every tray and shelf. The parts build on each other.
func TestMixedRack(t *testing.T) {
	t.Parallel()
	m := newMixedRack(t)
	for _, part := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"add", m.add},
		{"compare before", m.compareBefore},
		{"busy tray", m.occupy},
		{"apply stored", m.applyStored},
		{"compare between", m.compareBetween},
		{"history", m.history},
		{"apply", m.apply},
		{"plan", m.plan},
		{"compare after", m.compareAfter},
		{"left behind", m.leftBehind},
	} {
		if !t.Run(part.name, part.run) {
			return
		}
	}
}

// startArtifacts starts a server whose certificate is in a file.
func startArtifacts(t *testing.T) (s *artifacts.Server, roots string) {
	t.Helper()
	s, err := artifacts.Start(t.Context(), artifacts.Options{TLS: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	roots = filepath.Join(t.TempDir(), "artifacts.crt")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	require.NoError(t, os.WriteFile(roots, text, 0o600))
	return s, roots
}

// artifactSettings let the cluster fetch from such a server.
func artifactSettings(roots string) map[string]string {
	return map[string]string{"artifacts.addresses": `["127.0.0.0/8"]`, "artifacts.tls_ca": fmt.Sprintf("%q", roots)}
}

func newMixedRack(t *testing.T) *mixedRack {
	t.Helper()
	files, roots := startArtifacts(t)
	o := sim.Options{RackID: "mixed", Timing: bmc.Timing{Task: 300 * time.Millisecond, BMCOutage: 200 * time.Millisecond}, Seed: 3}
	for _, typ := range mixedTypes() {
		n := sim.NodeTypeCount{Type: typ, Count: 1}
		if typ == "compute_gb200_nvidia" || typ == "compute_gb300_nvidia" {
			n.Count = 2
		}
		o.NodeTypes = append(o.NodeTypes, n)
	}
	c := cluster.Start(t, cluster.Options{Racks: []sim.Options{o}, Settings: artifactSettings(roots)})
	client := c.Client(0)
	m := &mixedRack{
		scene: &scene{Cluster: c, Client: client}, firmware: rackbusv1.NewFirmwareClient(client.Conn), rack: c.Racks[0], files: files,
		first: newRelease(t, files, 1), second: newRelease(t, files, 2),
	}
	m.failing, m.busy = m.spare("compute_gb200_nvidia"), m.spare("compute_gb300_nvidia")
	return m
}

// spare is the second device of a type.
func (m *mixedRack) spare(nodeType string) *sim.Device {
	all := slices.DeleteFunc(slices.Clone(m.rack.Devices()), func(d *sim.Device) bool { return typeOf(d) != nodeType })
	return all[1]
}

// typeOf is a device's node type.
func typeOf(d *sim.Device) string { return strings.ToLower(d.NodeType()) }

// forRack returns a context for work on the whole rack.
func forRack(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeoutCause(t.Context(), releasePatience, context.DeadlineExceeded)
	t.Cleanup(cancel)
	return ctx
}

// add: the files are fetched once and verified.
func (m *mixedRack) add(t *testing.T) {
	ctx := forRack(t)
	out, err := m.AddFirmwareObject(ctx, &rackmanager.AddFirmwareObjectRequest{ConfigJson: m.first.config, HardwareType: "mixed"})
	require.NoError(t, err)
	require.Equal(t, m.first.id, out.GetObject().GetId())
	require.True(t, out.GetObject().GetIsDefault())
	status := awaitObject(ctx, t, m.firmware, m.first.id)
	require.Len(t, status.GetArtifacts(), len(m.first.kinds))
	require.EqualValues(t, len(m.first.kinds), status.GetArtifactsAvailable())
	require.Equal(t, status.GetBytesTotal(), status.GetBytesDone())
	got, err := m.GetFirmwareObject(ctx, &rackmanager.GetFirmwareObjectRequest{Id: m.first.id})
	require.NoError(t, err)
	require.True(t, got.GetObject().GetAvailable())
	seen := map[string]int{}
	for _, r := range m.files.Requests() {
		if r.Method == "GET" {
			seen[r.Path]++
		}
	}
	require.Len(t, seen, len(m.first.kinds))
	for path, n := range seen {
		require.Equal(t, 1, n, path)
	}
}

// awaitObject polls the status of a firmware object until its download has ended well.
func awaitObject(ctx context.Context, t *testing.T, c rackbusv1.FirmwareClient, id string) *rackbusv1.GetFirmwareObjectStatusResponse {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		status, err := c.GetFirmwareObjectStatus(ctx, &rackbusv1.GetFirmwareObjectStatusRequest{ObjectId: id})
		require.NoError(t, err)
		require.Empty(t, status.GetObject().GetFailure())
		if status.GetObject().GetAvailable() {
			return status
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s is still not available: %v", id, status)
		}
	}
}

// requireCompared compares the rack with a release: the devices that are left out match, the others differ in every
// component.
func (m *mixedRack) requireCompared(t *testing.T, r release, differ ...*sim.Device) {
	t.Helper()
	out, err := m.CompareFirmwareObject(forRack(t), &rackmanager.CompareFirmwareObjectRequest{
		ConfigJson: r.config, FirmwareType: "prod", Nodes: m.NodeSet(m.rack),
	})
	require.NoError(t, err)
	require.Equal(t, success, out.GetResponse().GetStatus(), "%v", out.GetResponse())
	require.Equal(t, r.id, out.GetObjectId())
	require.Equal(t, len(differ) == 0, out.GetMatchesManifest())
	require.Len(t, out.GetNodes(), len(m.rack.Devices()))
	for _, n := range out.GetNodes() {
		d := m.rack.Device(n.GetNodeId())
		matched := !slices.Contains(differ, d)
		want := rackmanager.FirmwareComparisonStatus_FIRMWARE_COMPARISON_STATUS_MISMATCHED
		if matched {
			want = rackmanager.FirmwareComparisonStatus_FIRMWARE_COMPARISON_STATUS_MATCHED
		}
		require.Equal(t, matched, n.GetMatchesManifest(), "%s: %v", d, n)
		lines := map[string][]string{}
		for _, line := range n.GetComponents() {
			require.Equal(t, want, line.GetStatus(), "%s: %v", d, line)
			require.Equal(t, r.versions[line.GetComponent()], line.GetProposedVersion(), "%s: %v", d, line)
			require.Equal(t, d.Version(line.GetInstalledComponent()), line.GetInstalledVersion(), "%s: %v", d, line)
			lines[line.GetComponent()] = append(lines[line.GetComponent()], line.GetInstalledComponent())
		}
		for component, entries := range shown(typeOf(d)) {
			require.ElementsMatch(t, entries, lines[component], "%s: %s", d, component)
		}
	}
}

func (m *mixedRack) compareBefore(t *testing.T) { m.requireCompared(t, m.first, m.rack.Devices()...) }

func (m *mixedRack) compareBetween(t *testing.T) { m.requireCompared(t, m.first, m.busy) }

func (m *mixedRack) compareAfter(t *testing.T) { m.requireCompared(t, m.second) }

// occupy starts an update of the busy tray that does not get on.
func (m *mixedRack) occupy(t *testing.T) {
	ctx := within(t)
	m.WriteTrayPackage("long.fwpkg", "1.0.9")
	m.busy.UpdateKnobs(func(k *bmc.Knobs) { k.TaskStuckAt = 40 })
	out, err := m.BatchUpdateFirmware(ctx, &rackmanager.BatchUpdateFirmwareRequest{
		Nodes: m.NodeSet(m.rack, m.busy.ID()), Activate: true, FirmwareTargets: map[int32]*rackmanager.FirmwareTargetList{
			trayGB300: {Targets: []*rackmanager.FirmwareTarget{{Filename: "long.fwpkg"}}},
		},
	})
	require.NoError(t, err)
	requireBatch(t, out.GetResponse(), 1)
	m.holder = out.GetJobs()[0].GetJobId()
	_, err = m.rack.WaitRequests(ctx, m.busy.ID(), reqlog.Filter{Path: "/redfish/v1/TaskService/Tasks/*", Method: "GET"}, 1)
	require.NoError(t, err)
}

// free ends the work on the busy tray, which then forgets the task.
func (m *mixedRack) free(ctx context.Context, t *testing.T) {
	t.Helper()
	_, err := m.Jobs.CancelJob(ctx, &rackbusv1.CancelJobRequest{
		JobId: m.holder, Mode: rackbusv1.CancelMode_CANCEL_MODE_TERMINATE, Reason: "stuck",
	})
	require.NoError(t, err)
	m.failed(ctx, t, m.holder)
	m.busy.UpdateKnobs(func(k *bmc.Knobs) { k.TaskStuckAt, k.LoseTasksOnRestart = 0, true })
	m.busy.Restart()
}

// applyStored: one tray is refused, all other devices get the release.
func (m *mixedRack) applyStored(t *testing.T) {
	ctx := forRack(t)
	since := m.sequence()
	out, err := m.ApplyStoredFirmwareObject(ctx, &rackmanager.ApplyStoredFirmwareObjectRequest{
		RackId: m.rack.ID(), HardwareType: "mixed", FirmwareType: "prod", Nodes: m.NodeSet(m.rack),
	})
	require.NoError(t, err)
	require.Equal(t, m.first.id, out.GetObjectId(), "the default of its hardware type")
	m.requireBusyRefused(t, out.GetResponse())
	require.Len(t, out.GetJobs(), len(m.rack.Devices())-1)
	m.completed(ctx, t, out.GetResponse().GetJobId())
	for _, child := range out.GetJobs() {
		m.completed(ctx, t, child.GetJobId())
		m.requireUpdated(t, m.first, m.rack.Device(child.GetNodeId()), since)
	}
	require.Empty(t, m.uploadsSince(m.first, m.busy, since))
}

// requireBusyRefused: of the rack only the busy tray is refused, and the refusal names the job that holds it.
func (m *mixedRack) requireBusyRefused(t *testing.T, b *rackmanager.NodeBatchResponse) {
	t.Helper()
	total := len(m.rack.Devices())
	require.NotEqual(t, success, b.GetStatus())
	require.EqualValues(t, total, b.GetStats().GetTotalNodes(), "%v", b)
	require.EqualValues(t, total-1, b.GetStats().GetSuccessfulNodes(), "%v", b)
	require.EqualValues(t, 1, b.GetStats().GetFailedNodes())
	for _, r := range b.GetNodeResults() {
		if r.GetNodeId() == m.busy.ID() {
			require.NotEqual(t, success, r.GetStatus())
			require.Contains(t, r.GetErrorMessage(), m.holder)
			continue
		}
		require.Equal(t, success, r.GetStatus(), "%v", r)
	}
}

// sequence is the number of the latest request.
func (m *mixedRack) sequence() uint64 {
	var last uint64
	for _, e := range m.rack.Requests("", reqlog.Filter{}) {
		last = max(last, e.Seq)
	}
	return last
}

// uploadsSince tells what a device has been sent and how often it was restarted, in order.
func (m *mixedRack) uploadsSince(r release, d *sim.Device, since uint64) []string {
	var out []string
	for _, e := range m.rack.Requests(d.ID(), reqlog.Filter{Writes: true, After: since}) {
		switch {
		case e.Upload != nil && !e.Complete:
			out = append(out, "part of "+r.kinds[e.SHA256])
		case e.Upload != nil:
			kind, known := r.kinds[e.SHA256]
			if !known {
				kind = "unknown file " + e.Upload.File
			}
			out = append(out, kind)
		case strings.HasSuffix(e.Path, "/NvidiaChassis.AuxPowerReset"), strings.HasSuffix(e.Path, "/Manager.Reset"):
			out = append(out, "restart")
		}
	}
	return out
}

// requireUpdated: the device got each file whole and once, in the right order, and shows the new versions.
func (m *mixedRack) requireUpdated(t *testing.T, r release, d *sim.Device, since uint64) {
	t.Helper()
	require.Equal(t, story(typeOf(d)), m.uploadsSince(r, d, since), "%s", d)
	for component, entries := range shown(typeOf(d)) {
		for _, entry := range entries {
			require.Equal(t, r.versions[component], d.Version(entry), "%s: %s", d, entry)
		}
	}
	require.Empty(t, d.Pending(), "%s", d)
	require.Equal(t, bmc.PowerOn, d.PowerState(), "%s", d)
}

// history: the apply is there although a node was refused.
func (m *mixedRack) history(t *testing.T) {
	out, err := m.GetFirmwareObjectHistory(within(t), &rackmanager.GetFirmwareObjectHistoryRequest{ObjectId: m.first.id})
	require.NoError(t, err)
	require.Len(t, out.GetRecords(), 1)
	r := out.GetRecords()[0]
	require.Equal(t, []string{m.first.id, m.rack.ID(), "mixed"}, []string{r.GetObjectId(), r.GetRackId(), r.GetHardwareType()})
	require.Equal(t, "prod", r.GetFirmwareType())
	require.True(t, r.GetFirmwareAvailable())
	var all []string
	for _, d := range m.rack.Devices() {
		all = append(all, d.ID())
	}
	require.ElementsMatch(t, all, r.GetNodeIds())
}

// apply: a manifest that is not stored, with a tray that fails beside the busy one.
func (m *mixedRack) apply(t *testing.T) {
	ctx := forRack(t)
	refuseImages(m.failing)
	since := m.sequence()
	out, err := m.ApplyFirmwareObject(ctx, &rackmanager.ApplyFirmwareObjectRequest{
		RackId: m.rack.ID(), ConfigJson: m.second.config, HardwareType: "mixed", FirmwareType: "prod", Nodes: m.NodeSet(m.rack),
	})
	require.NoError(t, err)
	require.Equal(t, m.second.id, out.GetObjectId())
	m.requireBusyRefused(t, out.GetResponse())
	parent := m.failed(ctx, t, out.GetResponse().GetJobId())
	admitted := len(m.rack.Devices()) - 1
	require.Contains(t, parent.GetStateDescription(), fmt.Sprintf("%d/%d succeeded, 1 failed", admitted-1, admitted))
	for _, child := range out.GetJobs() {
		d := m.rack.Device(child.GetNodeId())
		if d == m.failing {
			m.requireFailure(ctx, t, child.GetJobId(), since)
			continue
		}
		m.completed(ctx, t, child.GetJobId())
		m.requireUpdated(t, m.second, d, since)
	}
	m.requireCompared(t, m.second, m.failing, m.busy)

	history, err := m.GetFirmwareObjectHistory(ctx, &rackmanager.GetFirmwareObjectHistoryRequest{ObjectId: m.second.id})
	require.NoError(t, err)
	require.Empty(t, history.GetRecords(), "the object is not a stored one")
	m.requireCachesRemoved(ctx, t)
}

// requireFailure: the device's own words reach the caller, and nothing is sent after the file that failed.
func (m *mixedRack) requireFailure(ctx context.Context, t *testing.T, id string, since uint64) {
	t.Helper()
	child := m.failed(ctx, t, id)
	require.Contains(t, child.GetErrorMessage(), "could not be verified")
	require.Contains(t, m.firmwareStatus(ctx, t, id).GetErrorMessage(), "could not be verified")
	got, err := m.Jobs.GetJob(ctx, &rackbusv1.GetJobRequest{JobId: id})
	require.NoError(t, err)
	failure := got.GetJob().GetFailure()
	require.Equal(t, refusedImage, failure.GetDevice().GetMessageId())
	require.NotEmpty(t, failure.GetPhase())
	require.Equal(t, []string{"HMC"}, m.uploadsSince(m.second, m.failing, since), "nothing is sent after it")
	require.Empty(t, m.failing.Pending())
	m.failing.UpdateKnobs(func(k *bmc.Knobs) { k.TaskEnd = nil })
}

// requireCachesRemoved: the files of an apply go with its last job.
func (m *mixedRack) requireCachesRemoved(ctx context.Context, t *testing.T) {
	t.Helper()
	dir := filepath.Join(m.FirmwareDir, "firmware_objects_ephemeral")
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		caches, err := os.ReadDir(dir)
		if !os.IsNotExist(err) {
			require.NoError(t, err)
		}
		if len(caches) == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("caches are left: %v", caches)
		}
	}
}

// plan: what the two trays still lack is frozen, and applied as it is.
func (m *mixedRack) plan(t *testing.T) {
	ctx := forRack(t)
	m.free(ctx, t)
	nodes := m.NodeSet(m.rack, m.busy.ID(), m.failing.ID())
	checked, err := m.firmware.CheckFirmwarePlan(ctx, &rackbusv1.CheckFirmwarePlanRequest{
		ConfigJson: m.second.config, HardwareType: "mixed", FirmwareType: "prod", RackId: m.rack.ID(), Nodes: nodes,
	})
	require.NoError(t, err)
	require.Equal(t, "PLAN_CHECKED", m.completed(ctx, t, checked.GetJobId()).GetStateDescription())
	plan := checked.GetPlan()
	require.Len(t, plan.GetNodes(), 2)
	for _, n := range plan.GetNodes() {
		require.Empty(t, n.GetRefusal())
		var keys []string
		for _, target := range n.GetTargets() {
			keys = append(keys, target.GetKey())
		}
		require.Equal(t, []string{"HMC", "BMC"}, keys)
	}
	require.Len(t, plan.GetArtifacts(), 2, "only what these trays take")
	since := m.sequence()

	_, err = m.firmware.ApplyFirmwarePlan(ctx, &rackbusv1.ApplyFirmwarePlanRequest{
		SnapshotId: plan.GetSnapshotId(), Nodes: m.NodeSet(m.rack, m.busy.ID()),
	})
	require.Error(t, err, "other nodes: not at all")
	out, err := m.firmware.ApplyFirmwarePlan(ctx, &rackbusv1.ApplyFirmwarePlanRequest{SnapshotId: plan.GetSnapshotId(), Nodes: nodes})
	require.NoError(t, err)
	requireBatch(t, out.GetResponse(), 2)
	m.completed(ctx, t, out.GetResponse().GetJobId())
	for _, child := range out.GetJobs() {
		m.completed(ctx, t, child.GetJobId())
		m.requireUpdated(t, m.second, m.rack.Device(child.GetNodeId()), since)
	}
}

// leftBehind: no job is open, no lock is held, and no device has seen a write of a hold that had passed to another.
func (m *mixedRack) leftBehind(t *testing.T) {
	l := cluster.Judge(m.Writes())
	require.Empty(t, l.Stale)
	require.Empty(t, l.Overlaps)
	snapshot, err := m.Snapshot(within(t))
	require.NoError(t, err)
	require.Empty(t, snapshot.Open())
	require.Empty(t, snapshot.Violations())
}
