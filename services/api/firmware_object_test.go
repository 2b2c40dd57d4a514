// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/credentials"
	"github.com/rackbus/rackbus/pkg/firmware/artifact"
	"github.com/rackbus/rackbus/pkg/firmware/catalog"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// Short forms of the JSON of manifests.
type (
	js  = map[string]any
	arr = []any
)

func pack(component, version, location string) js {
	return js{"Component": component, "Version": version, "Type": "Prod", "Locations": arr{
		js{"Location": location, "LocationType": "https", "Type": "Firmware"}}}
}

func boardOf(role string, components ...any) js {
	return js{"Name": "b", "Type": role, "Components": js{"Firmware": components}}
}

func manifestOf(t *testing.T, product string, boards ...any) string {
	t.Helper()
	if boards == nil {
		boards = arr{}
	}
	data, err := json.Marshal(js{"ProductName": product, "Milestones": arr{js{"Name": "1.0", "BoardSKUs": boards}}})
	require.NoError(t, err)
	return string(data)
}

// mixed is the manifest of a rack with trays, shelves and switches.
func mixed(t *testing.T, product string) string {
	t.Helper()
	return manifestOf(t, product,
		boardOf("Compute Node", pack("HMC", "h2", "https://files.invalid/hmc.fwpkg"), pack("BMC", "b2", "https://files.invalid/bmc.fwpkg"),
			pack("CX7", "c2", "https://files.invalid/cx7.bin")),
		boardOf("Power Shelf", pack("LiteOn PMC", "p2", "https://files.invalid/pmc.tar"), pack("Delta-PSU", "d2", "https://files.invalid/dpsu.tar")),
		boardOf("Switch Tray", pack("CPLD", "s2", "https://files.invalid/cpld.vme")))
}

// signed gives one file of mixed a URL with a secret.
func signed(config string) string {
	return strings.Replace(config, "bmc.fwpkg", "bmc.fwpkg?sig=s3cret-signature", 1)
}

func (h *harness) catalog() *catalog.Bus { return catalog.NewBus(h.conn, nil) }

func (h *harness) firmwareService() rackbusv1.FirmwareClient {
	return rackbusv1.NewFirmwareClient(h.cc)
}

func (h *harness) add(config, hardware string, setDefault bool) *rackmanager.FirmwareObject {
	h.t.Helper()
	resp, err := h.rm.AddFirmwareObject(h.t.Context(), &rackmanager.AddFirmwareObjectRequest{
		ConfigJson: config, HardwareType: hardware, SetDefault: setDefault})
	require.NoError(h.t, err)
	return resp.GetObject()
}

// makeAvailable does what the download of an object does.
func (h *harness) makeAvailable(id string) {
	h.t.Helper()
	c := h.catalog()
	records, err := c.CacheArtifacts(h.t.Context(), id)
	require.NoError(h.t, err)
	for i, r := range records {
		require.NoError(h.t, c.UpdateArtifact(h.t.Context(), id, r.GetPath(), func(a *catalog.Artifact) {
			a.State, a.Sha256 = rackbusv1.ArtifactState_ARTIFACT_STATE_AVAILABLE, []byte(strings.Repeat(string(rune('a'+i)), 32))
			a.BytesDone, a.BytesTotal = 10, 10
		}))
	}
	lookup, err := c.Lookup(h.t.Context(), id)
	require.NoError(h.t, err)
	_, err = c.SetAvailable(h.t.Context(), id, lookup)
	require.NoError(h.t, err)
}

func TestAddFirmwareObject(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	config := signed(mixed(t, "ACME"))
	resp, err := h.rm.AddFirmwareObject(t.Context(), &rackmanager.AddFirmwareObjectRequest{
		ConfigJson: config, HardwareType: "gb200", AccessToken: proto.String(plantedPassword)})
	require.NoError(t, err)
	o := resp.GetObject()
	require.Equal(t, "ACME_1.0", o.GetId())
	require.False(t, o.GetAvailable())
	require.True(t, o.GetIsDefault(), "the first of its hardware type")
	require.JSONEq(t, strings.Replace(config, "sig=s3cret-signature", "concealed", 1), o.GetConfigJson())

	// Trays that can only be described are among the types of the metadata.
	types := map[string][]string{}
	for _, d := range o.GetMetadata().GetDeviceComponents() {
		a := d.GetNodeDescriptor().GetAttributes()
		for _, c := range d.GetComponents() {
			types[a["vendor"]+" "+a["product_family"]+" "+a["role"]] = append(types[a["vendor"]+" "+a["product_family"]+" "+a["role"]], c.GetName())
		}
		if a["vendor"] == "wiwynn" {
			require.Equal(t, rackmanager.NodeType_NODE_TYPE_UNSPECIFIED, d.GetNodeType())
			require.Equal(t, "Compute Node", d.GetDeviceType())
		}
	}
	require.Contains(t, types["wiwynn gb200 compute"], "CX7")
	require.Equal(t, []string{"BMC", "HMC"}, types["lenovo gb300 compute"])
	require.Equal(t, []string{"LiteOnPMC"}, types["liteon gb300 power_shelf"])

	record, err := h.catalog().Find(t.Context(), o.GetId())
	require.NoError(t, err)
	cmd := h.command(node.FamilyRack, record.GetDownloadJobId())
	require.Equal(t, "artifact_download", cmd.GetType())
	require.Equal(t, o.GetId(), cmd.GetArtifactDownload().GetCache())
	require.True(t, proto.Equal(&rackbusv1.NodeTarget{RackId: "firmware", NodeId: o.GetId()}, cmd.GetTarget()))
	var secrets rackbusv1.DownloadSecrets
	require.NoError(t, credentials.OpenSecrets(h.openers[node.FamilyRack], cmd, &secrets))
	require.Equal(t, plantedPassword, secrets.GetAccessToken())
	require.Equal(t, map[string]string{"prod/bmc.fwpkg": "https://files.invalid/bmc.fwpkg?sig=s3cret-signature"}, secrets.GetLocations())
	raw, err := proto.Marshal(cmd)
	require.NoError(t, err)
	require.NotContains(t, string(raw), plantedPassword)
	require.NotContains(t, string(raw), "s3cret-signature")

	status, err := h.firmwareService().GetFirmwareObjectStatus(t.Context(), &rackbusv1.GetFirmwareObjectStatusRequest{ObjectId: o.GetId()})
	require.NoError(t, err)
	require.Len(t, status.GetArtifacts(), 6)
	for _, a := range status.GetArtifacts() {
		require.Equal(t, rackbusv1.ArtifactState_ARTIFACT_STATE_PENDING, a.GetState())
		require.NotContains(t, a.GetLocation(), "s3cret")
		require.True(t, a.GetRequired())
	}
	require.NotContains(t, h.log.String(), plantedPassword)
	require.NotContains(t, h.log.String(), "s3cret-signature")
	kept, err := h.catalog().Manifest(t.Context(), o.GetId())
	require.NoError(t, err)
	require.NotContains(t, string(kept), "s3cret-signature", "secrets do not lie on a disk")

	_, err = h.rm.AddFirmwareObject(t.Context(), &rackmanager.AddFirmwareObjectRequest{ConfigJson: config, HardwareType: "gb200"})
	requireCode(t, err, codes.AlreadyExists, "firmware object ACME_1.0 already exists")
}

func TestAddFirmwareObjectRefusals(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	broken := manifestOf(t, "P", boardOf("Compute Node", js{"Component": "BMC", "Locations": arr{js{"Type": "Firmware", "Location": "https://x/a.bin"}}}))
	badDigest := manifestOf(t, "P", boardOf("Compute Node", js{"Component": "BMC", "Type": "Prod", "Locations": arr{
		js{"Type": "Firmware", "LocationType": "https", "Location": "https://x/a.bin", "Sha256": "12"}}}))
	for name, c := range map[string]struct{ config, hardware, text string }{
		"syntax":            {"{", "", "invalid config_json: "},
		"bad characters":    {manifestOf(t, "../../etc"), "", "single path-safe component"},
		"control character": {manifestOf(t, "a\x00b"), "gb200", "single path-safe component"},
		"too long":          {manifestOf(t, strings.Repeat("=", 60)), "gb200", "too long"},
		"hardware first":    {broken, " ", "hardware_type is required"},
		"then the manifest": {broken, "gb200", "is missing Type"},
		"then its digests":  {badDigest, "gb200", "invalid Sha256 for component BMC"},
	} {
		_, err := h.rm.AddFirmwareObject(t.Context(), &rackmanager.AddFirmwareObjectRequest{ConfigJson: c.config, HardwareType: c.hardware})
		requireCode(t, err, codes.InvalidArgument, c.text)
		require.NotContains(t, err.Error(), "panic", name)
	}
	list, err := h.rm.ListFirmwareObjects(t.Context(), &rackmanager.ListFirmwareObjectsRequest{})
	require.NoError(t, err)
	require.Empty(t, list.GetObjects(), "a refused manifest leaves nothing behind")
	count, err := h.conn.CountRecords(t.Context())
	require.NoError(t, err)
	require.Zero(t, count)
}

// An object without files needs no download; one without boards says why it stays
// as it is.
func TestObjectsWithoutFiles(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.add(manifestOf(t, "NOFILES", boardOf("Compute Node", js{"Component": "BMC", "Type": "Prod"})), "x", false)
	got, err := h.rm.GetFirmwareObject(t.Context(), &rackmanager.GetFirmwareObjectRequest{Id: "NOFILES_1.0"})
	require.NoError(t, err)
	require.True(t, got.GetObject().GetAvailable())
	require.Nil(t, got.GetObject().GetMetadata())

	h.add(manifestOf(t, "NOBOARDS"), "x", false)
	status, err := h.firmwareService().GetFirmwareObjectStatus(t.Context(), &rackbusv1.GetFirmwareObjectStatusRequest{ObjectId: "NOBOARDS_1.0"})
	require.NoError(t, err)
	require.False(t, status.GetObject().GetAvailable())
	require.Contains(t, status.GetObject().GetFailure(), "no boards")
	_, err = h.firmwareService().RetryFirmwareObjectDownload(t.Context(), &rackbusv1.RetryFirmwareObjectDownloadRequest{ObjectId: "NOBOARDS_1.0"})
	requireCode(t, err, codes.FailedPrecondition, "no file to download")
}

// TestD3LargestManifestIsStored: a manifest of the published size is stored whole, and
// left out of answers that a client with the usual limit could not read.
func TestD3LargestManifestIsStored(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	padding := strings.Repeat("x", 16<<20-4096)
	config := strings.Replace(mixed(t, "LARGE"), `"ProductName"`, `"Padding":"`+padding+`","ProductName"`, 1)
	require.Less(t, len(config), 16<<20)
	var trailer metadata.MD
	resp, err := h.rm.AddFirmwareObject(t.Context(), &rackmanager.AddFirmwareObjectRequest{ConfigJson: config, HardwareType: "gb200"}, grpc.Trailer(&trailer))
	require.NoError(t, err)
	require.Empty(t, resp.GetObject().GetConfigJson())
	require.NotEmpty(t, resp.GetObject().GetMetadata().GetDeviceComponents())
	require.Contains(t, strings.Join(trailer.Get(metaReason), ""), "config_json of LARGE_1.0")
	stored, err := h.catalog().Manifest(t.Context(), "LARGE_1.0")
	require.NoError(t, err)
	require.Equal(t, config, string(stored))
	h.add(mixed(t, "SMALL"), "gb200", false)
	list, err := h.rm.ListFirmwareObjects(t.Context(), &rackmanager.ListFirmwareObjectsRequest{})
	require.NoError(t, err)
	require.Len(t, list.GetObjects(), 2)
	require.NotEmpty(t, list.GetObjects()[0].GetConfigJson())
	require.Empty(t, list.GetObjects()[1].GetConfigJson())

	_, err = h.rm.AddFirmwareObject(t.Context(), &rackmanager.AddFirmwareObjectRequest{ConfigJson: strings.Repeat("x", 18<<20), HardwareType: "gb200"})
	requireCode(t, err, codes.ResourceExhausted, "")
}

func TestDefaultsAndLists(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	ids := func(req *rackmanager.ListFirmwareObjectsRequest) (out []string) {
		resp, err := h.rm.ListFirmwareObjects(t.Context(), req)
		require.NoError(t, err)
		for _, o := range resp.GetObjects() {
			id := o.GetId()
			if o.GetIsDefault() {
				id += "*"
			}
			out = append(out, id)
		}
		return out
	}
	require.True(t, h.add(mixed(t, "A"), "gb200", false).GetIsDefault())
	require.False(t, h.add(mixed(t, "B"), "gb200", false).GetIsDefault(), "there is one already")
	require.True(t, h.add(mixed(t, "C"), "gb200", true).GetIsDefault())
	require.True(t, h.add(mixed(t, "D"), "any", false).GetIsDefault(), "any is a slot of its own")
	require.Equal(t, []string{"D_1.0*", "C_1.0*", "B_1.0", "A_1.0"}, ids(&rackmanager.ListFirmwareObjectsRequest{}))
	h.makeAvailable("A_1.0")
	h.makeAvailable("D_1.0")
	require.Equal(t, []string{"D_1.0*", "A_1.0"}, ids(&rackmanager.ListFirmwareObjectsRequest{OnlyAvailable: true}))
	require.Equal(t, []string{"A_1.0"}, ids(&rackmanager.ListFirmwareObjectsRequest{OnlyAvailable: true, HardwareType: "gb200"}))
	require.Empty(t, ids(&rackmanager.ListFirmwareObjectsRequest{HardwareType: "GB200"}), "hardware types are exact")

	set, err := h.rm.SetDefaultFirmwareObject(t.Context(), &rackmanager.SetDefaultFirmwareObjectRequest{ObjectId: "B_1.0"})
	require.NoError(t, err)
	require.True(t, set.GetObject().GetIsDefault())
	require.Equal(t, []string{"D_1.0*", "C_1.0", "B_1.0*", "A_1.0"}, ids(&rackmanager.ListFirmwareObjectsRequest{}))
	_, err = h.rm.SetDefaultFirmwareObject(t.Context(), &rackmanager.SetDefaultFirmwareObjectRequest{ObjectId: "Z"})
	requireCode(t, err, codes.NotFound, "firmware object Z not found")
	for _, id := range []string{"", strings.Repeat("=", 200)} {
		_, err = h.rm.GetFirmwareObject(t.Context(), &rackmanager.GetFirmwareObjectRequest{Id: id})
		requireCode(t, err, codes.NotFound, "not found")
		_, err = h.rm.SetDefaultFirmwareObject(t.Context(), &rackmanager.SetDefaultFirmwareObjectRequest{ObjectId: id})
		requireCode(t, err, codes.NotFound, "not found")
	}

	// Deleting the default leaves the hardware type without one.
	del, err := h.rm.DeleteFirmwareObject(t.Context(), &rackmanager.DeleteFirmwareObjectRequest{Id: "B_1.0"})
	require.NoError(t, err)
	require.Equal(t, "deleted firmware object B_1.0", del.GetResponse().GetMessage())
	require.Equal(t, []string{"D_1.0*", "C_1.0", "A_1.0"}, ids(&rackmanager.ListFirmwareObjectsRequest{}))
	_, err = h.rm.GetFirmwareObject(t.Context(), &rackmanager.GetFirmwareObjectRequest{Id: "B_1.0"})
	requireCode(t, err, codes.NotFound, "firmware object B_1.0 not found")
	_, err = h.rm.ApplyStoredFirmwareObject(t.Context(), &rackmanager.ApplyStoredFirmwareObjectRequest{HardwareType: "gb200", Nodes: set1(compute("r", "n"))})
	requireCode(t, err, codes.NotFound, "default firmware object for gb200 not found")
}

func set1(n *rackmanager.NodeInfo) *rackmanager.NodeSet { return set(n) }

func TestDeleteWhileDownloading(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.add(mixed(t, "A"), "gb200", false)
	record, err := h.catalog().Find(t.Context(), "A_1.0")
	require.NoError(t, err)
	h.firmware("firmware_objects/A_1.0/prod/bmc.fwpkg", "half")
	for _, id := range []string{"", "..", "a/b", `a\b`} {
		_, err = h.rm.DeleteFirmwareObject(t.Context(), &rackmanager.DeleteFirmwareObjectRequest{Id: id})
		requireCode(t, err, codes.InvalidArgument, "single path-safe component")
	}
	_, err = h.rm.DeleteFirmwareObject(t.Context(), &rackmanager.DeleteFirmwareObjectRequest{Id: "B"})
	requireCode(t, err, codes.NotFound, "firmware object B not found")
	_, err = h.rm.DeleteFirmwareObject(t.Context(), &rackmanager.DeleteFirmwareObjectRequest{Id: "A_1.0"})
	require.NoError(t, err)
	_, err = os.Stat(filepath.Join(h.files, "firmware_objects/A_1.0"))
	require.ErrorIs(t, err, os.ErrNotExist)
	records, err := h.catalog().CacheArtifacts(t.Context(), "A_1.0")
	require.NoError(t, err)
	require.Empty(t, records)
	events, _, err := h.conn.NewestJobEvents(t.Context(), parseID(t, record.GetDownloadJobId()), 0, 10, 16<<20)
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(events, func(e bus.StoredEvent) bool {
		return e.Kind == job.EventCancelRequested && e.Cancel.Mode == job.CancelGraceful
	}), "the download was asked to stop")
	// The id can be used again, though the former download may not have ended yet.
	h.add(mixed(t, "A"), "gb300", false)
	again, err := h.catalog().Find(t.Context(), "A_1.0")
	require.NoError(t, err)
	require.Empty(t, again.GetFailure())
	require.NotEqual(t, record.GetDownloadJobId(), again.GetDownloadJobId())
	next, _, err := h.conn.Record(t.Context(), parseID(t, again.GetDownloadJobId()))
	require.NoError(t, err)
	require.Equal(t, record.GetDownloadJobId(), next.WaitsFor.String(), "it waits for the former one")
}

func TestRetryDownload(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.add(mixed(t, "A"), "gb200", false)
	fw, c := h.firmwareService(), h.catalog()
	req := &rackbusv1.RetryFirmwareObjectDownloadRequest{ObjectId: "A_1.0", AccessToken: plantedPassword}
	_, err := fw.RetryFirmwareObjectDownload(t.Context(), req)
	requireCode(t, err, codes.FailedPrecondition, "is being downloaded")
	record, err := c.Find(t.Context(), "A_1.0")
	require.NoError(t, err)
	first := record.GetDownloadJobId()
	h.command(node.FamilyRack, first)
	h.fold(parseID(t, first), started(), finished(job.StateFailed))
	require.NoError(t, c.UpdateArtifact(t.Context(), "A_1.0", "prod/bmc.fwpkg", func(a *catalog.Artifact) {
		a.State, a.Failure, a.Attempts = rackbusv1.ArtifactState_ARTIFACT_STATE_FAILED, "download failed with status 404", 3
	}))
	require.NoError(t, c.UpdateArtifact(t.Context(), "A_1.0", "prod/hmc.fwpkg", func(a *catalog.Artifact) {
		a.State, a.BytesDone, a.BytesTotal = rackbusv1.ArtifactState_ARTIFACT_STATE_AVAILABLE, 70, 70
	}))
	_, err = c.SetFailure(t.Context(), "A_1.0", "1 required firmware artifact downloads failed")
	require.NoError(t, err)
	status, err := fw.GetFirmwareObjectStatus(t.Context(), &rackbusv1.GetFirmwareObjectStatusRequest{ObjectId: "A_1.0"})
	require.NoError(t, err)
	require.Equal(t, uint32(1), status.GetArtifactsFailed())
	require.Equal(t, uint32(1), status.GetArtifactsAvailable())
	require.Equal(t, int64(70), status.GetBytesDone())
	require.Contains(t, status.GetObject().GetFailure(), "downloads failed")
	apply, err := h.rm.ApplyStoredFirmwareObject(t.Context(), &rackmanager.ApplyStoredFirmwareObjectRequest{ObjectId: "A_1.0", Nodes: set(compute("r", "n"))})
	require.NoError(t, err)
	requireFailure(t, apply.GetResponse().GetStatus())
	require.Contains(t, apply.GetResponse().GetMessage(), "firmware object A_1.0 is not available: 1 required")

	again, err := fw.RetryFirmwareObjectDownload(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, uint32(5), again.GetArtifacts())
	require.NotEqual(t, first, again.GetJobId())
	cmd := h.command(node.FamilyRack, again.GetJobId())
	var secrets rackbusv1.DownloadSecrets
	require.NoError(t, credentials.OpenSecrets(h.openers[node.FamilyRack], cmd, &secrets))
	require.Equal(t, plantedPassword, secrets.GetAccessToken())
	record, err = c.Find(t.Context(), "A_1.0")
	require.NoError(t, err)
	require.Equal(t, again.GetJobId(), record.GetDownloadJobId())
	require.Empty(t, record.GetFailure())

	h.makeAvailable("A_1.0")
	_, err = fw.RetryFirmwareObjectDownload(t.Context(), req)
	requireCode(t, err, codes.FailedPrecondition, "is available already")
	_, err = fw.GetFirmwareObjectStatus(t.Context(), &rackbusv1.GetFirmwareObjectStatusRequest{ObjectId: "B"})
	requireCode(t, err, codes.NotFound, "firmware object B not found")
}

// A location of which a part was not kept cannot be fetched again.
func TestRetryDownloadOfAConcealedLocation(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.add(signed(mixed(t, "A")), "gb200", false)
	fw, c := h.firmwareService(), h.catalog()
	record, err := c.Find(t.Context(), "A_1.0")
	require.NoError(t, err)
	h.command(node.FamilyRack, record.GetDownloadJobId())
	h.fold(parseID(t, record.GetDownloadJobId()), started(), finished(job.StateFailed))
	req := &rackbusv1.RetryFirmwareObjectDownloadRequest{ObjectId: "A_1.0"}
	_, err = fw.RetryFirmwareObjectDownload(t.Context(), req)
	requireCode(t, err, codes.FailedPrecondition, "add it again")
	require.NoError(t, c.UpdateArtifact(t.Context(), "A_1.0", "prod/bmc.fwpkg", func(a *catalog.Artifact) {
		a.State = rackbusv1.ArtifactState_ARTIFACT_STATE_AVAILABLE
	}))
	again, err := fw.RetryFirmwareObjectDownload(t.Context(), req)
	require.NoError(t, err, "it is there, and the others can be had")
	require.Equal(t, uint32(5), again.GetArtifacts())
}

// What the download would refuse is refused at once, wherever a manifest comes in.
func TestArtifactPolicy(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(o *Options) {
		o.ArtifactPolicy = &artifact.Policy{Schemes: []string{"https"}, Hosts: []string{"files.invalid"}}
	})
	h.add(mixed(t, "FINE"), "gb200", false)
	config := func(location string) string {
		return manifestOf(t, "P", boardOf("Compute Node", pack("HMC", "h2", location)))
	}
	for location, text := range map[string]string{
		"https://elsewhere.invalid/a.fwpkg":                    "host elsewhere.invalid",
		"https://user:s3cret@169.254.169.254/a.fwpkg?t=s3cret": "169.254.169.254",
		"http://files.invalid/a.fwpkg":                         "scheme http",
		"ftp://files.invalid/a.fwpkg":                          "not supported",
	} {
		t.Run(location, func(t *testing.T) {
			_, err := h.rm.AddFirmwareObject(t.Context(), &rackmanager.AddFirmwareObjectRequest{ConfigJson: config(location), HardwareType: "gb200"})
			requireCode(t, err, codes.InvalidArgument, text)
			require.NotContains(t, err.Error(), "s3cret")
			_, err = h.catalog().Find(t.Context(), "P_1.0")
			require.ErrorIs(t, err, catalog.ErrNotFound)

			_, err = h.firmwareService().CheckFirmwarePlan(t.Context(), &rackbusv1.CheckFirmwarePlanRequest{
				ConfigJson: config(location), HardwareType: "gb200", FirmwareType: "prod", Nodes: set(compute("r", "n"))})
			requireCode(t, err, codes.InvalidArgument, text)

			resp, err := h.rm.ApplyFirmwareObject(t.Context(), &rackmanager.ApplyFirmwareObjectRequest{
				RackId: "r", ConfigJson: config(location), HardwareType: "gb200", FirmwareType: "prod", Nodes: set(compute("r", "n"))})
			require.NoError(t, err)
			r, _, err := h.conn.Record(t.Context(), parseID(t, resp.GetResponse().GetJobId()))
			require.NoError(t, err)
			require.Equal(t, job.StateFailed, r.State, "its jobs have failed")
			child, _, err := h.conn.Record(t.Context(), r.ID.Child(1))
			require.NoError(t, err)
			require.Equal(t, job.FailureManifestInvalid, child.Failure.FailureCode)
			require.Contains(t, child.Failure.Message, text)
			require.NotContains(t, child.ResultJSON, "s3cret")
		})
	}
}

// An object that was stored while its download could not start says so.
func TestDownloadNotStarted(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.server.admitter.Drain()
	o := h.add(mixed(t, "A"), "gb200", false)
	status, err := h.firmwareService().GetFirmwareObjectStatus(t.Context(), &rackbusv1.GetFirmwareObjectStatusRequest{ObjectId: o.GetId()})
	require.NoError(t, err)
	require.Contains(t, status.GetObject().GetFailure(), "the server is shutting down")
	_, err = h.firmwareService().RetryFirmwareObjectDownload(t.Context(), &rackbusv1.RetryFirmwareObjectDownloadRequest{ObjectId: o.GetId()})
	requireCode(t, err, codes.Unavailable, "shutting down")
}

func TestHistory(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	c := h.catalog()
	h.add(mixed(t, "A"), "gb200", false)
	h.makeAvailable("A_1.0")
	for _, a := range []*catalog.Apply{
		{ObjectId: "A_1.0", RackId: "r1", FirmwareType: "prod", HardwareType: "gb200", NodeIds: []string{"n1"}},
		{ObjectId: "GONE", RackId: "r2", FirmwareType: "dev"},
		{ObjectId: "A_1.0", RackId: "r2", FirmwareType: "prod"},
	} {
		require.NoError(t, c.RecordApply(t.Context(), a))
	}
	lines := func(req *rackmanager.GetFirmwareObjectHistoryRequest) (out []string) {
		resp, err := h.rm.GetFirmwareObjectHistory(t.Context(), req)
		require.NoError(t, err)
		var last *timestamppb.Timestamp
		for _, r := range resp.GetRecords() {
			out = append(out, r.GetObjectId()+" "+r.GetRackId())
			require.Equal(t, r.GetObjectId() == "A_1.0", r.GetFirmwareAvailable())
			require.True(t, last == nil || !r.GetAppliedAt().AsTime().After(last.AsTime()))
			last = r.GetAppliedAt()
		}
		return out
	}
	require.Equal(t, []string{"A_1.0 r2", "GONE r2", "A_1.0 r1"}, lines(&rackmanager.GetFirmwareObjectHistoryRequest{}))
	require.Equal(t, []string{"A_1.0 r2", "A_1.0 r1"}, lines(&rackmanager.GetFirmwareObjectHistoryRequest{ObjectId: "A_1.0"}))
	require.Equal(t, []string{"A_1.0 r2"}, lines(&rackmanager.GetFirmwareObjectHistoryRequest{ObjectId: "A_1.0", RackIds: []string{"r2", "r3"}}))
	require.Empty(t, lines(&rackmanager.GetFirmwareObjectHistoryRequest{RackIds: []string{"r9"}}))
}

func TestCatalogErrorsHaveTheirCodes(t *testing.T) {
	t.Parallel()
	for err, code := range map[error]codes.Code{
		catalog.ErrNotFound: codes.NotFound, catalog.ErrExists: codes.AlreadyExists, catalog.ErrInvalid: codes.InvalidArgument,
	} {
		requireCode(t, asStatus(statusError(errors.Join(err))), code, err.Error())
	}
}
