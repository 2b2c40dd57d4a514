// SPDX-License-Identifier: Apache-2.0

package api

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/firmware/catalog"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

const imageFile = "nvos-amd64-25.02.4440.bin"

func TestBuildOf(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"a/nvos-amd64-25.02.4440.bin":         "nvos-25.02.4440",
		"nvos-25.02.4440_25.02.4440.bin":      "nvos-25.02.4440",
		"nvos-25.01.2434-013.bin":             "nvos-25.01.2434",
		"25.02.4440/nvos.bin":                 "",
		"nvos-1.2.3-to-4.5.6.bin":             "",
		"nvos-25.02.bin":                      "",
		"nvos-amd64-25.02.4440.with.name.bin": "nvos-25.02.4440",
	} {
		got, err := buildOf(file)
		require.Equal(t, want, got, file)
		require.Equal(t, want == "", err != nil, file)
	}
}

func TestUpdateSwitchSystemImage(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	agents := h.switches(nil)
	h.firmware("nvos/"+imageFile, strings.Repeat("x", 2048))
	bad, texts := badSwitches()
	// A BMC that cannot be used is none, and one that no switch has.
	noBMC := switchNode("r1", 2)
	noBMC.BmcEndpoint.Interface.IpAddress = "127.0.0.1"
	req := &rackmanager.UpdateSwitchSystemImageRequest{
		Nodes: set(append(bad, switchNode("r1", 1), noBMC, switchNode("r1", 1))...), ImageFilename: "nvos.bin", LocalFilePath: "nvos/" + imageFile,
	}
	ctx := with(t.Context(), metaIdempotencyKey, "k", metaJobName, "tuesday")
	resp, err := h.rm.UpdateSwitchSystemImage(ctx, req)
	require.NoError(t, err)
	r := resp.GetResponse()
	requireFailure(t, r.GetStatus())
	require.Equal(t, "Created 2 switch system image jobs out of 11 nodes. "+
		"Use GetSwitchSystemImageJobStatus with job_id to track overall batch status.", r.GetMessage())
	requireStats(t, 11, 9, r)
	got := messages(r)
	require.Contains(t, got["sw-1"], job.DuplicateText("r1", "sw-1"))
	delete(got, "sw-1")
	require.Equal(t, texts, got, "admitted switches stand in jobs only")
	require.Equal(t, []string{"sw-1", "sw-2"}, []string{resp.GetJobs()[0].GetNodeId(), resp.GetJobs()[1].GetNodeId()})
	require.Len(t, resp.GetJobs(), 2)

	ran := agents.next(2)
	op := ran["sw-1"].cmd.GetSwitchImageUpdate()
	require.Equal(t, string(job.TypeSwitchSystemImageUpdate), ran["sw-1"].cmd.GetType())
	require.Equal(t, "nvos.bin", op.GetImageFilename())
	require.Equal(t, "nvos-25.02.4440", op.GetTargetBuildId())
	require.Equal(t, "nvos/"+imageFile, op.GetFile())
	require.EqualValues(t, 2048, op.GetSizeBytes())
	require.Len(t, op.GetSha256(), 32)
	require.NotNil(t, ran["sw-1"].cmd.GetTarget().GetBmc())
	require.Nil(t, ran["sw-2"].cmd.GetTarget().GetBmc())
	parent, _, err := h.conn.Record(t.Context(), parseID(t, r.GetJobId()))
	require.NoError(t, err)
	require.Equal(t, "r1", parent.RackID, "that of the first node")
	require.Equal(t, "tuesday", parent.Name)

	again, err := h.rm.UpdateSwitchSystemImage(ctx, req)
	require.NoError(t, err)
	require.True(t, proto.Equal(resp, again), "%v", again)
	status, err := h.rm.GetSwitchSystemImageJobStatus(t.Context(), &rackmanager.GetSwitchSystemImageJobStatusRequest{JobId: r.GetJobId()})
	require.NoError(t, err)
	require.Equal(t, "running", status.GetState())
	h.requireNowhere(plantedPassword)

	// The nodes are taken, whatever the fold has seen of their jobs.
	busy, err := h.rm.UpdateSwitchSystemImage(t.Context(), &rackmanager.UpdateSwitchSystemImageRequest{
		Nodes: set(switchNode("r1", 1)), ImageFilename: "nvos.bin", LocalFilePath: "nvos/" + imageFile})
	require.NoError(t, err)
	require.Equal(t, "No switch system image jobs created", busy.GetResponse().GetMessage())
	require.Contains(t, messages(busy.GetResponse())["sw-1"], resp.GetJobs()[0].GetJobId())
	require.NotEmpty(t, busy.GetResponse().GetJobId())
}

func TestUpdateSwitchSystemImageIsRefused(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.firmware(imageFile, strings.Repeat("x", 1024))
	h.firmware("small-1.2.3.bin", strings.Repeat("x", 1023))
	h.firmware("nvos.bin", strings.Repeat("x", 1024))
	good := set(switchNode("r1", 1))
	yes := true
	for text, req := range map[string]*rackmanager.UpdateSwitchSystemImageRequest{
		"no nodes specified in request":                    {ImageFilename: "a.bin", LocalFilePath: imageFile},
		"image_filename is required":                       {Nodes: good, LocalFilePath: imageFile},
		`image_filename "../a.bin" must consist`:           {Nodes: good, ImageFilename: "../a.bin", LocalFilePath: imageFile},
		"local_file_path is required":                      {Nodes: good, ImageFilename: "a.bin"},
		"invalid local_file_path: firmware file not found": {Nodes: good, ImageFilename: "a.bin", LocalFilePath: "none-1.2.3.bin"},
		"is outside firmware directory":                    {Nodes: good, ImageFilename: "a.bin", LocalFilePath: "/etc/passwd"},
		"has 1023 bytes, less than 1024":                   {Nodes: good, ImageFilename: "a.bin", LocalFilePath: "small-1.2.3.bin"},
		"contains no version of the form X.Y.Z":            {Nodes: good, ImageFilename: "a.bin", LocalFilePath: "nvos.bin"},
		"allow_onie_recovery cannot be honoured":           {Nodes: good, ImageFilename: "a.bin", LocalFilePath: imageFile, AllowOnieRecovery: &yes},
	} {
		resp, err := h.rm.UpdateSwitchSystemImage(t.Context(), req)
		require.NoError(t, err)
		requireFailure(t, resp.GetResponse().GetStatus())
		require.Contains(t, resp.GetResponse().GetMessage(), text)
		require.Empty(t, resp.GetResponse().GetJobId())
		requireStats(t, 0, 0, resp.GetResponse())
	}
	_, err := h.rm.UpdateSwitchSystemImage(t.Context(), &rackmanager.UpdateSwitchSystemImageRequest{Nodes: set(typed("r1", "x", 99))})
	requireCode(t, err, codes.InvalidArgument, "unknown node type value 99")
	count, err := h.conn.CountRecords(t.Context())
	require.NoError(t, err)
	require.Zero(t, count, "a refused request leaves nothing behind")
}

func TestNoRoomForSwitchJobs(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(o *Options) { o.Admission.MaxTrackedJobs = 2 }, insecureSwitches)
	h.admitOn(compute("r9", "other"))
	h.firmware(imageFile, strings.Repeat("x", 1024))
	two := set(switchNode("r1", 1), switchNode("r1", 2))
	services := []rackmanager.SwitchService{rackmanager.SwitchService_SWITCH_SERVICE_NVUE_API}
	image, err := h.rm.UpdateSwitchSystemImage(t.Context(), &rackmanager.UpdateSwitchSystemImageRequest{
		Nodes: two, ImageFilename: "a.bin", LocalFilePath: imageFile})
	require.NoError(t, err)
	require.Contains(t, image.GetResponse().GetMessage(), "failed to create parent switch system image job: no room for another job")
	requireStats(t, 2, 2, image.GetResponse())
	reset, err := h.rm.BatchResetSwitchFactoryDefault(t.Context(), &rackmanager.BatchResetSwitchFactoryDefaultRequest{Nodes: two})
	require.NoError(t, err)
	require.Contains(t, reset.GetResponse().GetMessage(), "failed to create parent switch factory-default reset job")
	require.Len(t, reset.GetResponse().GetNodeResults(), 2, "every node has a line")
	sdn, err := h.rm.BatchResetSwitchSdnFactoryDefault(t.Context(), &rackmanager.BatchResetSwitchSdnFactoryDefaultRequest{Nodes: two})
	require.NoError(t, err)
	require.Contains(t, sdn.GetResponse().GetMessage(), "no room for another job")
	mtls, err := h.rm.BatchDisableSwitchMtls(t.Context(), &rackmanager.BatchDisableSwitchMtlsRequest{Nodes: two, Services: services})
	require.NoError(t, err)
	require.Contains(t, mtls.GetResponse().GetMessage(), "no room for another job")
	password, err := h.rm.UpdateSwitchSystemPassword(t.Context(), &rackmanager.UpdateSwitchSystemPasswordRequest{
		Nodes: two, Username: "admin", Password: plantedNew})
	require.NoError(t, err)
	require.Contains(t, password.GetResponse().GetMessage(), "no room for another job")
	require.Nil(t, password.GetResponse().GetStats())
	_, err = h.rm.ConfigureSwitchCertificate(t.Context(), &rackmanager.ConfigureSwitchCertificateRequest{Nodes: two, Services: services})
	requireCode(t, err, codes.ResourceExhausted, "no room for another job")
}

// imageManifest offers an image of the release channel prod.
func imageManifest(t *testing.T, product, file string) string {
	t.Helper()
	return manifestOf(t, product, js{"Name": "b", "Type": "Switch Tray", "Components": js{"Software": arr{js{
		"Component": "NVOS", "Version": "25.02.4440", "Type": "Prod", "Locations": arr{js{
			"Location": "https://files.invalid/" + file, "LocationType": "https", "PackageName": "nvos", "Type": "Software"}}}}}})
}

func TestApplyStoredSwitchSystemImage(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	agents := h.switches(nil)
	h.add(imageManifest(t, "IMG", imageFile), "gb200", false)
	h.add(imageManifest(t, "ODD", "nvos.bin"), "gb300", false)
	h.add(mixed(t, "NONE"), "vr", false)
	req := &rackmanager.ApplyStoredSwitchSystemImageRequest{
		RackId: "rack-of-request", HardwareType: "gb200", SoftwareType: "PROD", Nodes: set(switchNode("r1", 1), compute("r1", "tray")),
	}
	early, err := h.rm.ApplyStoredSwitchSystemImage(t.Context(), req)
	require.NoError(t, err)
	require.Contains(t, early.GetResponse().GetMessage(), "firmware object IMG_1.0 is not available")
	for _, id := range []string{"IMG_1.0", "ODD_1.0", "NONE_1.0"} {
		h.makeAvailable(id)
	}
	ctx := with(t.Context(), metaIdempotencyKey, "k")
	resp, err := h.rm.ApplyStoredSwitchSystemImage(ctx, req)
	require.NoError(t, err)
	requireFailure(t, resp.GetResponse().GetStatus())
	require.Equal(t, "IMG_1.0", resp.GetObjectId())
	require.Equal(t, imageFile, resp.GetImageFilename())
	requireStats(t, 2, 1, resp.GetResponse())
	require.Equal(t, map[string]string{"tray": "node tray is not a switch (type=compute_gb200_nvidia)"}, messages(resp.GetResponse()))
	op := agents.next(1)["sw-1"].cmd.GetSwitchImageUpdate()
	require.Equal(t, "IMG_1.0", op.GetArtifact().GetCache())
	require.Equal(t, "prod/"+imageFile, op.GetArtifact().GetPath())
	require.Equal(t, "nvos-25.02.4440", op.GetTargetBuildId())
	require.Len(t, op.GetSha256(), 32, "what was fetched is what will be installed")
	history, err := h.catalog().ListHistory(t.Context(), catalog.HistoryFilter{})
	require.NoError(t, err)
	require.Len(t, history, 1)
	require.Equal(t, "rack-of-request", history[0].GetRackId())
	require.Equal(t, []string{"tray"}, history[0].GetRefusedNodeIds())

	// The same call again is the same jobs, whatever became of the object.
	_, err = h.rm.DeleteFirmwareObject(t.Context(), &rackmanager.DeleteFirmwareObjectRequest{Id: "IMG_1.0"})
	require.NoError(t, err)
	again, err := h.rm.ApplyStoredSwitchSystemImage(ctx, req)
	require.NoError(t, err)
	require.Equal(t, resp.GetJobs()[0].GetJobId(), again.GetJobs()[0].GetJobId())

	yes := true
	for name, c := range map[string]struct {
		req  *rackmanager.ApplyStoredSwitchSystemImageRequest
		code codes.Code
		text string
	}{
		"no object":    {&rackmanager.ApplyStoredSwitchSystemImageRequest{}, codes.InvalidArgument, "hardware_type is required when object_id is empty"},
		"unknown":      {&rackmanager.ApplyStoredSwitchSystemImageRequest{ObjectId: "X"}, codes.NotFound, "firmware object X not found"},
		"other":        {&rackmanager.ApplyStoredSwitchSystemImageRequest{ObjectId: "ODD_1.0", HardwareType: "gb200"}, codes.FailedPrecondition, "does not match request hardware type gb200"},
		"no image":     {&rackmanager.ApplyStoredSwitchSystemImageRequest{ObjectId: "NONE_1.0", SoftwareType: "prod"}, codes.OK, "firmware object NONE_1.0 has no switch system image for firmware type prod"},
		"channel":      {&rackmanager.ApplyStoredSwitchSystemImageRequest{ObjectId: "ODD_1.0", SoftwareType: "dev"}, codes.OK, "has no switch system image for firmware type dev"},
		"build":        {&rackmanager.ApplyStoredSwitchSystemImageRequest{ObjectId: "ODD_1.0", SoftwareType: "prod", Nodes: set(switchNode("r1", 2))}, codes.OK, "contains no version"},
		"onie":         {&rackmanager.ApplyStoredSwitchSystemImageRequest{ObjectId: "ODD_1.0", SoftwareType: "prod", Nodes: set(switchNode("r1", 2)), AllowOnieRecovery: &yes}, codes.OK, "contains no version"},
		"unknown type": {&rackmanager.ApplyStoredSwitchSystemImageRequest{ObjectId: "ODD_1.0", Nodes: set(typed("r1", "x", 99))}, codes.InvalidArgument, "unknown node type value 99"},
	} {
		resp, err := h.rm.ApplyStoredSwitchSystemImage(t.Context(), c.req)
		if c.code != codes.OK {
			requireCode(t, err, c.code, c.text)
			continue
		}
		require.NoError(t, err, name)
		requireFailure(t, resp.GetResponse().GetStatus())
		require.Contains(t, resp.GetResponse().GetMessage(), c.text, name)
		require.Empty(t, resp.GetResponse().GetJobId())
	}
}

func TestApplySwitchSystemImageInline(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	req := &rackmanager.ApplySwitchSystemImageRequest{
		RackId: "rack-of-request", ConfigJson: imageManifest(t, "INLINE", imageFile), AccessToken: proto.String(plantedNew),
		SoftwareType: "prod", HardwareType: "gb200", Nodes: set(switchNode("r1", 1), switchNode("r2", 2), switchNode("r1", 1)),
	}
	ctx := with(t.Context(), metaIdempotencyKey, "k")
	resp, err := h.rm.ApplySwitchSystemImage(ctx, req)
	require.NoError(t, err)
	r := resp.GetResponse()
	requireFailure(t, r.GetStatus())
	require.Equal(t, textImageApplyCreated, r.GetMessage())
	require.Empty(t, resp.GetImageFilename())
	require.Equal(t, "INLINE_1.0", resp.GetObjectId())
	require.Len(t, resp.GetJobs(), 2)
	require.Equal(t, job.DuplicateText("r1", "sw-1"), messages(r)["sw-1"])
	parent, _, err := h.conn.Record(t.Context(), parseID(t, r.GetJobId()))
	require.NoError(t, err)
	require.Equal(t, "rack-of-request", parent.RackID)
	require.Len(t, parent.Cleanup, 1)
	cache := strings.TrimPrefix(parent.Cleanup[0], "firmware_objects_ephemeral/")
	require.Equal(t, cache, h.commands(node.FamilyRack, 1)[cache].GetArtifactDownload().GetCache(), "the file is fetched")
	records, err := h.catalog().CacheArtifacts(t.Context(), cache)
	require.NoError(t, err)
	require.Len(t, records, 1, "and nothing else")
	require.Equal(t, "prod/"+imageFile, records[0].GetPath())
	require.True(t, records[0].GetRequired())
	op := h.commands(node.FamilySwitch, 2)["sw-2"].GetSwitchImageUpdate()
	require.Equal(t, cache, op.GetArtifact().GetCache())
	require.Equal(t, "nvos-25.02.4440", op.GetTargetBuildId())
	again, err := h.rm.ApplySwitchSystemImage(ctx, req)
	require.NoError(t, err)
	require.Equal(t, r.GetJobId(), again.GetResponse().GetJobId())
	h.requireNowhere(plantedPassword, plantedNew)
}

func TestApplySwitchSystemImageFailsItsJobs(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	for text, config := range map[string]string{
		"invalid config_json":        "{",
		"has no switch system image": mixed(t, "NONE"),
		"contains no version":        imageManifest(t, "ODD", "nvos.bin"),
	} {
		resp, err := h.rm.ApplySwitchSystemImage(t.Context(), &rackmanager.ApplySwitchSystemImageRequest{
			RackId: "r1", ConfigJson: config, SoftwareType: "prod", HardwareType: "gb200", Nodes: set(switchNode("r1", 1)),
		})
		require.NoError(t, err)
		requireSuccess(t, resp.GetResponse().GetStatus(), resp.GetResponse().GetMessage())
		status, err := h.rm.GetJobStatus(t.Context(), &rackmanager.GetJobStatusRequest{JobId: resp.GetJobs()[0].GetJobId()})
		require.NoError(t, err)
		s := status.GetJobStates()[0]
		require.Equal(t, rackmanager.JobExecutionState_JOB_EXECUTION_STATE_FAILED, s.GetExecutionState())
		require.Equal(t, rackmanager.JobError(job.CodeOther.JobError()), s.GetErrorCode())
		require.Contains(t, s.GetErrorMessage(), text)
		require.Empty(t, s.GetResultJson())
	}
	yes := true
	onie, err := h.rm.ApplySwitchSystemImage(t.Context(), &rackmanager.ApplySwitchSystemImageRequest{
		HardwareType: "gb200", Nodes: set(switchNode("r1", 1)), AllowOnieRecovery: &yes})
	require.NoError(t, err)
	require.Contains(t, onie.GetResponse().GetMessage(), "allow_onie_recovery")
	none, err := h.rm.ApplySwitchSystemImage(t.Context(), &rackmanager.ApplySwitchSystemImageRequest{HardwareType: "gb200"})
	require.NoError(t, err)
	require.Equal(t, textNoDevices, none.GetResponse().GetMessage())
	_, err = h.rm.ApplySwitchSystemImage(t.Context(), &rackmanager.ApplySwitchSystemImageRequest{Nodes: set(switchNode("r1", 1))})
	requireCode(t, err, codes.InvalidArgument, "hardware_type is required")
	// Refused nodes need no download, and leave none behind.
	refused, err := h.rm.ApplySwitchSystemImage(t.Context(), &rackmanager.ApplySwitchSystemImageRequest{
		ConfigJson: imageManifest(t, "I", imageFile), SoftwareType: "prod", HardwareType: "gb200", Nodes: set(compute("r1", "tray"))})
	require.NoError(t, err)
	require.Equal(t, "No switch system image apply jobs created", refused.GetResponse().GetMessage())
	_, _, err = h.conn.Command(t.Context(), node.FamilyRack, cacheRef("I_1.0"))
	require.ErrorIs(t, err, bus.ErrNotFound)
}

func TestGetSwitchJobStatusWithoutAJob(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	for id, text := range map[string]string{"": "job_id is required", "nope": "job nope not found"} {
		image, err := h.rm.GetSwitchSystemImageJobStatus(t.Context(), &rackmanager.GetSwitchSystemImageJobStatusRequest{JobId: id})
		require.NoError(t, err)
		requireFailure(t, image.GetStatus())
		require.Equal(t, text, image.GetMessage())
		certificate, err := h.rm.GetConfigureSwitchCertificateJobStatus(t.Context(), &rackmanager.GetConfigureSwitchCertificateJobStatusRequest{JobId: id})
		require.NoError(t, err)
		requireFailure(t, certificate.GetStatus())
		require.Equal(t, text, certificate.GetMessage())
	}
}
