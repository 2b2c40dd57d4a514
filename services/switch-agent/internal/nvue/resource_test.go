// SPDX-License-Identifier: Apache-2.0

package nvue

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/secret"
)

// What is sent, byte for byte.
func TestWrites(t *testing.T) {
	t.Parallel()
	const start = `"state":"start","parameters":`
	for _, tt := range []struct {
		action Action
		line   string
		body   string
	}{
		{PowerCycle(), "POST /nvue_v1/system", `{"@power-cycle":{` + start + `{"force":true}}}`},
		{ResetToFactory(), "POST /nvue_v1/system/factory-default", `{"@reset":{` + start + `{"force":true}}}`},
		{UninstallImage(), "POST /nvue_v1/system/image", `{"@uninstall":{` + start + `{"force":true}}}`},
		{FetchImage("https://x/a.bin"), "POST /nvue_v1/system/image", `{"@fetch":{` + start + `{"remote-url":"https://x/a.bin"}}}`},
		{InstallImage("nvos-1.bin"), "POST /nvue_v1/system/image/files/nvos-1.bin", `{"@install":{` + start + `{"force":true,"image-file":"nvos-1.bin"}}}`},
		{InstallImageOnly("nvos-1.bin"), "POST /nvue_v1/system/image/files/nvos-1.bin", `{"@install":{` + start + `{"force":false,"reboot":"no","image-file":"nvos-1.bin"}}}`},
		{ImportCA("ca-1", "file:///c/ca.pem"), "POST /nvue_v1/system/security/ca-certificate/ca-1", `{"@import":{` + start + `{"uri":"file:///c/ca.pem"}}}`},
		{ImportCertificate("c-1", "file:///c/p", "file:///c/k"), "POST /nvue_v1/system/security/certificate/c-1", `{"@import":{` + start + `{"uri-public-key":"file:///c/p","uri-private-key":"file:///c/k"}}}`},
		{GenerateEvidence("ERoT_BMC_0", secret.New("00ff")), "POST /nvue_v1/system/security/spdm/ERoT_BMC_0", `{"@generate":{` + start + `{"nonce":"00ff"}}}`},
		{StartApp(AppController), "POST /nvue_v1/cluster/apps/nmx-controller", `{"@start":{"state":"start"}}`},
		{StopApp(AppTelemetry), "POST /nvue_v1/cluster/apps/nmx-telemetry", `{"@stop":{"state":"start"}}`},
		{SetManagerState(AppController, true), "POST /nvue_v1/cluster/apps/nmx-controller/manager", `{"@update":{` + start + `{"state":"enabled"}}}`},
		{SetManagerState(AppController, false), "POST /nvue_v1/cluster/apps/nmx-controller/manager", `{"@update":{` + start + `{"state":"disabled"}}}`},
		{SetManagerCertificate(AppController, "c-1"), "POST /nvue_v1/cluster/apps/nmx-controller/manager/certificate", `{"@update":{` + start + `{"cert-id":"c-1"}}}`},
		{SetManagerClientCA(AppController, "ca-1"), "POST /nvue_v1/cluster/apps/nmx-controller/manager/ca-certificate", `{"@update":{` + start + `{"cacert-id":"ca-1"}}}`},
		{SetManagerEncryption(AppController, MTLS), "POST /nvue_v1/cluster/apps/nmx-controller/manager/encryption", `{"@update":{` + start + `{"mode":"mtls"}}}`},
		{ResetSDN(), "POST /nvue_v1/sdn/factory-default", `{"@reset":{` + start + `{"force":true}}}`},
		{InstallFirmware("BMC/1", "a.fwpkg"), "POST /nvue_v1/platform/firmware/BMC%2F1/files/a.fwpkg", `{"@install":{` + start + `{"force":false}}}`},
		{FetchFirmware("file:///tmp/a.fwpkg"), "POST /nvue_v1/platform/firmware", `{"@fetch":{` + start + `{"remote-url":"file:///tmp/a.fwpkg"}}}`},
		{InstallFirmwareBundle("a.fwpkg"), "POST /nvue_v1/platform/firmware/files/a.fwpkg", `{"@install":{` + start + `{"force":false}}}`},
	} {
		f, c := bench(t, Options{})
		f.on(tt.line, reply{status: 201, body: `"act-1"`})
		id, err := c.StartAction(t.Context(), tt.action)
		require.NoError(t, err, tt.line)
		require.Equal(t, ActionID("act-1"), id)
		require.Equal(t, tt.body, f.requests()[0].body)
		require.NotEmpty(t, tt.action.String())
	}
	for _, tt := range []struct {
		edit Edit
		line string
		body string
	}{
		{SetUserPassword("admin", secret.New("s3")), "PATCH /nvue_v1/system/aaa/user/admin?rev=7", `{"password":"czM="}`},
		{SetGNMIState(true), "PATCH /nvue_v1/system/gnmi-server?rev=7", `{"state":"enabled"}`},
		{SetGNMIState(false), "PATCH /nvue_v1/system/gnmi-server?rev=7", `{"state":"disabled"}`},
		{SetGNMICertificate("c"), "PATCH /nvue_v1/system/gnmi-server?rev=7", `{"certificate":"c"}`},
		{SetGNMIClientCA("a"), "PATCH /nvue_v1/system/gnmi-server/mtls?rev=7", `{"ca-certificate":"a"}`},
		{SetAPICertificate("c"), "PATCH /nvue_v1/system/api?rev=7", `{"certificate":"c"}`},
		{SetAPIClientCA("a"), "PATCH /nvue_v1/system/api/mtls?rev=7", `{"ca-certificate":"a"}`},
		{SetClusterState(true), "PATCH /nvue_v1/cluster?rev=7", `{"state":"enabled"}`},
		{SetClusterState(false), "PATCH /nvue_v1/cluster?rev=7", `{"state":"disabled"}`},
		{AddNodeServers(NodePrimary, "192.0.2.2", " 192.0.2.1"), "PATCH /nvue_v1/cluster/node/primary/server?rev=7", `{"192.0.2.1":{},"192.0.2.2":{}}`},
		{ClearNodeServers(NodeSecondary), "DELETE /nvue_v1/cluster/node/secondary?rev=7", ``},
		{SetASICFollowsImage(), "PATCH /nvue_v1/platform/firmware/ASIC?rev=7", `{"auto-update":"enabled","fw-source":"default"}`},
	} {
		f, c := bench(t, Options{})
		f.on(tt.line, reply{})
		require.NoError(t, c.StageRevision(t.Context(), "7", tt.edit), tt.line)
		require.Equal(t, tt.body, f.requests()[0].body)
		require.NotEmpty(t, tt.edit.String())
	}
}

func TestReads(t *testing.T) {
	t.Parallel()
	far := time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		line string
		body string
		read func(*Client) (any, error)
		want any
	}{
		{"GET /nvue_v1/system/gnmi-server", `{"state":"disabled"}`, func(c *Client) (any, error) { return c.GNMI(t.Context()) }, GNMI{State: "disabled"}},
		{"GET /nvue_v1/system/gnmi-server", `{"operational":{"state":"enabled","certificate":"c"}}`, func(c *Client) (any, error) { return c.GNMI(t.Context()) }, GNMI{State: "enabled", Certificate: "c"}},
		{"GET /nvue_v1/system/gnmi-server/mtls", `{"ca-certificate":"a"}`, func(c *Client) (any, error) { return c.GNMIClientCA(t.Context()) }, "a"},
		{"GET /nvue_v1/system/api", `{"certificate":"self-signed"}`, func(c *Client) (any, error) { return c.APICertificate(t.Context()) }, SelfSigned},
		{"GET /nvue_v1/system/api", `{"applied":{"certificate":"c"}}`, func(c *Client) (any, error) { return c.APICertificate(t.Context()) }, "c"},
		{"GET /nvue_v1/system/api", `{"certificate":{"x":1},"operational":{"certificate":"o"},"applied":{"certificate":"c"}}`, func(c *Client) (any, error) { return c.APICertificate(t.Context()) }, "o"},
		{"GET /nvue_v1/system/api", `[]`, func(c *Client) (any, error) { return c.APICertificate(t.Context()) }, ""},
		{"GET /nvue_v1/system/api/mtls", `{}`, func(c *Client) (any, error) { return c.APIClientCA(t.Context()) }, ""},
		{"GET /nvue_v1/system/security/ca-certificate/a", `{"x":1}`, func(c *Client) (any, error) { return c.CACertificate(t.Context(), "a") }, json.RawMessage(`{"x":1}`)},
		{
			"GET /nvue_v1/system/security/certificate/c", `{"valid-to":"2099-01-01T00:00:00Z","installed":["nvue-rest-api","gnmi-server"]}`,
			func(c *Client) (any, error) { return bare(c.Certificate(t.Context(), "c")) },
			Certificate{ValidTo: "2099-01-01T00:00:00Z", NotAfter: far, Installed: []string{"gnmi-server", "nvue-rest-api"}},
		},
		{
			"GET /nvue_v1/system/security/certificate/c", `{"operational":{"valid-to":"soon","[installed]":{"gnmi-server":{}}}}`,
			func(c *Client) (any, error) { return bare(c.Certificate(t.Context(), "c")) },
			Certificate{ValidTo: "soon", Installed: []string{"gnmi-server"}},
		},
		{
			"GET /nvue_v1/system/security/certificate/c", `{"valid-to":7,"installed":"nvue-rest-api"}`,
			func(c *Client) (any, error) { return bare(c.Certificate(t.Context(), "c")) },
			Certificate{ValidTo: "7", Installed: []string{"nvue-rest-api"}},
		},
		{"GET /nvue_v1/system/security/certificate/c", `{}`, func(c *Client) (any, error) { return bare(c.Certificate(t.Context(), "c")) }, Certificate{}},
		{"GET /nvue_v1/system/security/spdm?rev=operational", `{"b":{},"a":{}," ":{}}`, func(c *Client) (any, error) { return c.EvidenceComponents(t.Context()) }, []string{"a", "b"}},
		{"GET /nvue_v1/system/security/spdm/a/measurements", "{\n \"m\": 1 }", func(c *Client) (any, error) { return c.Measurements(t.Context(), "a") }, []byte(`{"m":1}`)},
		{"GET /nvue_v1/system/security/spdm/a/certificates", `{"chain":"x"}`, func(c *Client) (any, error) { return c.EvidenceCertificates(t.Context(), "a") }, []byte(`{"chain":"x"}`)},
		{"GET /nvue_v1/cluster", `{"state":"enabled","nmxc-conn":{"state":"up"}}`, func(c *Client) (any, error) { return bareCluster(c.Cluster(t.Context())) }, Cluster{State: "enabled", Connection: "up"}},
		{"GET /nvue_v1/cluster", `{"state":"start","nmxc-conn":"down"}`, func(c *Client) (any, error) { return bareCluster(c.Cluster(t.Context())) }, Cluster{State: "start", Connection: "down"}},
		{"GET /nvue_v1/cluster", `{"nmxc-conn":7}`, func(c *Client) (any, error) { return bareCluster(c.Cluster(t.Context())) }, Cluster{Connection: "7"}},
		{"GET /nvue_v1/cluster/apps/nmx-controller/manager", `{"state":"active"}`, func(c *Client) (any, error) { return c.ManagerState(t.Context(), AppController) }, "active"},
		{"GET /nvue_v1/cluster/apps/nmx-controller/manager/certificate", `{"certificate":"c"}`, func(c *Client) (any, error) { return c.ManagerCertificate(t.Context(), AppController) }, "c"},
		{"GET /nvue_v1/cluster/apps/nmx-controller/manager/ca-certificate", `{"applied":{"ca-certificate":"a"}}`, func(c *Client) (any, error) { return c.ManagerClientCA(t.Context(), AppController) }, "a"},
		{"GET /nvue_v1/cluster/apps/nmx-controller/manager/encryption", `{"encryption":"mtls"}`, func(c *Client) (any, error) { return c.ManagerEncryption(t.Context(), AppController) }, MTLS},
		{"GET /nvue_v1/cluster/node/primary/server?rev=applied", `{"192.0.2.2":{},"192.0.2.1":{}}`, func(c *Client) (any, error) { return c.NodeServers(t.Context(), NodePrimary, Applied) }, []string{"192.0.2.1", "192.0.2.2"}},
		{"GET /nvue_v1/cluster/node/secondary/server?rev=a%2Fb", ``, func(c *Client) (any, error) { return c.NodeServers(t.Context(), NodeSecondary, "a/b") }, []string(nil)},
		{"GET /nvue_v1/platform/firmware/CPLD1", `{"v":1}`, func(c *Client) (any, error) { return c.FirmwareComponent(t.Context(), "CPLD1") }, json.RawMessage(`{"v":1}`)},
		{"GET /nvue_v1/platform/firmware/BMC/files", `{"a.fwpkg":{}}`, func(c *Client) (any, error) { return c.FirmwareFiles(t.Context(), "BMC") }, json.RawMessage(`{"a.fwpkg":{}}`)},
		{"GET /nvue_v1/system/image/files", `{"a.bin":{}}`, func(c *Client) (any, error) { return c.ImageFiles(t.Context()) }, json.RawMessage(`{"a.bin":{}}`)},
		{"GET /nvue_v1/platform/firmware/ASIC", `{"auto-update":"enabled","fw-source":"default"}`, func(c *Client) (any, error) { return c.ASICFirmware(t.Context()) }, ASICFirmware{AutoUpdate: "enabled", Source: "default"}},
	} {
		f, c := bench(t, Options{})
		f.on(tt.line, reply{body: tt.body})
		got, err := tt.read(c)
		require.NoError(t, err, "%s %s", tt.line, tt.body)
		require.Equal(t, tt.want, got, "%s %s", tt.line, tt.body)
	}
}

func bare(c Certificate, err error) (Certificate, error) {
	c.Raw = nil
	return c, err
}

func bareCluster(c Cluster, err error) (Cluster, error) {
	c.Raw = nil
	return c, err
}

func TestUnusableReads(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		line, body string
		read       func(*Client) error
		code       Code
	}{
		{"GET /nvue_v1/system/gnmi-server", `{}`, func(c *Client) error { _, err := c.GNMI(t.Context()); return err }, ErrBadResponse},
		{"GET /nvue_v1/system/security/spdm?rev=operational", `{}`, func(c *Client) error { _, err := c.EvidenceComponents(t.Context()); return err }, ErrFailedPrecondition},
		{"GET /nvue_v1/system/security/spdm?rev=operational", `[]`, func(c *Client) error { _, err := c.EvidenceComponents(t.Context()); return err }, ErrFailedPrecondition},
		{"GET /nvue_v1/system/security/spdm/a/measurements", `{}`, func(c *Client) error { _, err := c.Measurements(t.Context(), "a"); return err }, ErrBadResponse},
		{"GET /nvue_v1/system/security/spdm/a/measurements", `"x"`, func(c *Client) error { _, err := c.Measurements(t.Context(), "a"); return err }, ErrBadResponse},
		{"GET /nvue_v1/cluster/node/primary/server?rev=applied", `["x"]`, func(c *Client) error {
			_, err := c.NodeServers(t.Context(), NodePrimary, Applied)
			return err
		}, ErrBadResponse},
		{"GET /nvue_v1/platform/firmware", `[]`, func(c *Client) error { _, err := c.Firmware(t.Context()); return err }, ErrBadResponse},
		{"GET /nvue_v1/none", ``, func(c *Client) error { _, err := c.App(t.Context(), AppController); return err }, ErrNotFound},
	} {
		f, c := bench(t, Options{})
		f.on(tt.line, reply{body: tt.body})
		require.ErrorIs(t, tt.read(c), tt.code, tt.line)
	}
}

func TestApp(t *testing.T) {
	t.Parallel()
	f, c := bench(t, Options{})
	f.on("GET /nvue_v1/cluster/apps/nmx-controller", reply{body: `{"status":"ok","reason":"","addition-info":"CONTROL_PLANE_STATE_CONFIGURED","manager":{"state":"enabled","encryption":"disabled"}}`})
	a, err := c.App(t.Context(), AppController)
	require.NoError(t, err)
	a.Raw = nil
	require.Equal(t, App{Status: "ok", Info: ControlPlaneConfigured, ManagerState: "enabled", ManagerEncryption: "disabled"}, a)
	for body, stopped := range map[string]bool{
		`{"status":"stopped"}`: true, `{"reason":"stopped by user"}`: true, `{"reason":"was stopped by user"}`: false,
		`{"addition-info":"CONTROL_PLANE_STATE_STOPPED"}`: true, `{"additional-info":"STOPPED"}`: true,
		`{"additional-info":"CONTROL_PLANE_STATE_STARTING","addition-info":"STOPPED"}`: false, `{}`: false,
		`{"status":"not ok","manager":"odd"}`: false,
	} {
		require.Equal(t, stopped, appState(json.RawMessage(body)).Stopped(), body)
	}
}

func TestImageState(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		body            string
		current, next   [2]string // partition, build
		unused, unused2 string
	}{
		{`{"current":"1","next":"2","partition1":{"build-id":"a"},"partition2":{"build-id":"b"}}`, [2]string{Partition1, "a"}, [2]string{Partition2, "b"}, Partition2, "b"},
		{`{"current":"partition2","next":"partition2","partition1":"a","partition2":"b"}`, [2]string{Partition2, "b"}, [2]string{Partition2, "b"}, Partition1, "a"},
		{`{"current":"a","next":"b","partition1":"a","partition2":{"build-id":"b"}}`, [2]string{Partition1, "a"}, [2]string{Partition2, "b"}, Partition2, "b"},
		{`{"current":1,"next":2,"partition1":{"build-id":"a"},"partition2":{"build-id":""}}`, [2]string{Partition1, "a"}, [2]string{Partition2, "2"}, Partition2, ""},
		{`{"current":"x","next":"","partition1":"a"}`, [2]string{"", "x"}, [2]string{"", ""}, "", ""},
		{`{}`, [2]string{}, [2]string{}, "", ""},
		{`[]`, [2]string{}, [2]string{}, "", ""},
	} {
		s := imageState(json.RawMessage(tt.body))
		require.Equal(t, tt.current, [2]string{s.CurrentPartition, s.CurrentBuild}, tt.body)
		require.Equal(t, tt.next, [2]string{s.NextPartition, s.NextBuild}, tt.body)
		partition, build := s.UnusedPartition()
		require.Equal(t, [2]string{tt.unused, tt.unused2}, [2]string{partition, build}, tt.body)
	}
	f, c := bench(t, Options{})
	f.on("GET /nvue_v1/system/image", reply{body: `{"current":"1","partition1":"a"}`})
	s, err := c.Image(t.Context())
	require.NoError(t, err)
	require.Equal(t, "a", s.CurrentBuild)
}

func TestListsFile(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]bool{
		`{"a.bin":{"path":"/x"}}`: true, `{"files":[{"name":"a.bin"}]}`: true, `["a.bin"]`: true, `"a.bin"`: true,
		`{"x":{"y":[[{"z":"a.bin"}]]}}`: true, `{"b.bin":{"path":"/host/nos-images/a.bin"}}`: false, `{}`: false, `x`: false, ``: false,
	} {
		require.Equal(t, want, ListsFile(json.RawMessage(body), "a.bin"), body)
	}
}

func TestPlatform(t *testing.T) {
	t.Parallel()
	f, c := bench(t, Options{})
	f.on("GET /nvue_v1/platform", reply{body: `{"product-name":"N/A","system-type":"T","part-number":7,"serial-number":"s"}`}, reply{body: `{"product-name":"P"}`})
	p, err := c.Platform(t.Context())
	require.NoError(t, err)
	p.Raw = nil
	require.Equal(t, Platform{ProductName: "T", PartNumber: "7", SerialNumber: "s"}, p)
	p, err = c.Platform(t.Context())
	require.NoError(t, err)
	require.Equal(t, "P", p.ProductName)

	f.on("GET /nvue_v1/platform/chassis-location", reply{body: `{"chassis-sn":182,"slot-number":"1","topology-id":{},"tray-index":0}`})
	l, err := c.ChassisLocation(t.Context())
	require.NoError(t, err)
	l.Raw = nil
	require.Equal(t, ChassisLocation{ChassisSN: "182", SlotNumber: "1", TrayIndex: "0"}, l)
	index, ok := l.Tray()
	require.True(t, ok)
	require.Zero(t, index)
	for _, odd := range []string{"", "-1", "4294967296", "a"} {
		_, ok := ChassisLocation{TrayIndex: odd}.Tray()
		require.False(t, ok, odd)
	}

	f.on("GET /nvue_v1/platform/firmware", reply{body: `{"BMC":{"actual-firmware":"1","version":"2"},"FPGA":{"Version":"3","Status":{"Health":"OK"}},"X":{"version":4,"Health":"Warning"},"Y":"odd"}`})
	fw, err := c.Firmware(t.Context())
	require.NoError(t, err)
	versions := map[string][2]string{}
	for name, v := range fw {
		versions[name] = [2]string{v.Version, v.Health}
	}
	require.Equal(t, map[string][2]string{"BMC": {"1", ""}, "FPGA": {"3", "OK"}, "X": {"4", "Warning"}, "Y": {"", ""}}, versions)
	require.True(t, ASICFirmware{AutoUpdate: "enabled", Source: "default"}.FollowsImage())
	require.False(t, ASICFirmware{AutoUpdate: "enabled", Source: "custom"}.FollowsImage())
}
