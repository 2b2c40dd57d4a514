// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/firmwarepackage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	root      = "/redfish/v1"
	system    = root + "/Systems/System_0"
	reset     = system + "/Actions/ComputerSystem.Reset"
	aux       = root + "/Chassis/BMC_0/Actions/Oem/NvidiaChassis.AuxPowerReset"
	update    = root + "/UpdateService"
	inventory = update + "/FirmwareInventory/"
	tasks     = root + "/TaskService/Tasks"
	hgx       = root + "/Chassis/HGX_Chassis_0"
	units     = root + "/Chassis/powershelf/Power/Oem/LiteOn/PowerUnits"
)

// quick makes everything short enough for a test to wait for.
var quick = bmc.Timing{Task: 60 * time.Millisecond, BMCOutage: 150 * time.Millisecond}

func start(t *testing.T, o sim.Options) *sim.Rack {
	t.Helper()
	if o.Timing == (bmc.Timing{}) {
		o.Timing = quick
	}
	rack, err := sim.Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, rack.Close()) })
	return rack
}

func tray(t *testing.T) (*sim.Rack, *sim.Device, *client) {
	t.Helper()
	rack := start(t, sim.Options{Compute: 1})
	d := rack.Devices()[0]
	return rack, d, newClient(t, rack, d)
}

func shelf(t *testing.T) (*sim.Rack, *sim.Device, *client) {
	t.Helper()
	rack := start(t, sim.Options{PowerShelves: 1})
	d := rack.Devices()[0]
	return rack, d, newClient(t, rack, d)
}

// client talks to one device with its credentials.
type client struct {
	t    *testing.T
	d    *sim.Device
	http *http.Client
	user string
	pass string
}

func newClient(t *testing.T, rack *sim.Rack, d *sim.Device) *client {
	pool := x509.NewCertPool()
	pool.AddCert(rack.Certificate())
	transport := &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs: pool, ServerName: "localhost", ClientSessionCache: tls.NewLRUClientSessionCache(8),
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &client{
		t: t, d: d, user: d.Username(), pass: d.Password(),
		http: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}},
	}
}

// reply is an answer with its body read.
type reply struct {
	status int
	header http.Header
	raw    []byte
	doc    map[string]any
}

// text returns a member reached by names.
func (r reply) get(names ...string) any {
	var at any = r.doc
	for _, n := range names {
		m, ok := at.(map[string]any)
		if !ok {
			return nil
		}
		at = m[n]
	}
	return at
}

func (c *client) request(ctx context.Context, method, path string, body io.Reader, header http.Header) (reply, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.d.URL()+path, body)
	require.NoError(c.t, err)
	for k, v := range header {
		r.Header[k] = v
	}
	if c.user != "" {
		r.SetBasicAuth(c.user, c.pass)
	}
	res, err := c.http.Do(r)
	if err != nil {
		return reply{}, err
	}
	defer res.Body.Close()
	out := reply{status: res.StatusCode, header: res.Header}
	if out.raw, err = io.ReadAll(res.Body); err != nil {
		return out, err
	}
	_ = json.Unmarshal(out.raw, &out.doc) // answers that are no JSON have no doc
	return out, nil
}

func (c *client) do(method, path string, body any, header ...string) reply {
	c.t.Helper()
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h[header[i]] = []string{header[i+1]}
	}
	var in io.Reader
	switch b := body.(type) {
	case nil:
	case []byte:
		in = bytes.NewReader(b)
		h.Set("Content-Type", "application/octet-stream")
	default:
		raw, err := json.Marshal(b)
		require.NoError(c.t, err)
		in = bytes.NewReader(raw)
		h.Set("Content-Type", "application/json")
	}
	out, err := c.request(c.t.Context(), method, path, in, h)
	require.NoError(c.t, err)
	return out
}

func (c *client) get(path string) reply {
	c.t.Helper()
	return c.do(http.MethodGet, path, nil)
}

func (c *client) post(path string, body any, header ...string) reply {
	c.t.Helper()
	return c.do(http.MethodPost, path, body, header...)
}

type obj = map[string]any

func (c *client) hostReset(kind string) reply {
	c.t.Helper()
	return c.post(reset, obj{"ResetType": kind})
}

// multipartBody returns an update body and its content type.
func multipartBody(t *testing.T, parameters, name string, file []byte, oem string) (*bytes.Buffer, string) {
	t.Helper()
	var out bytes.Buffer
	w := multipart.NewWriter(&out)
	add := func(name, kind, disposition string, data []byte) {
		h := textproto.MIMEHeader{}
		h.Set("Content-Disposition", disposition)
		h.Set("Content-Type", kind)
		p, err := w.CreatePart(h)
		require.NoError(t, err, name)
		_, err = p.Write(data)
		require.NoError(t, err, name)
	}
	if parameters != "" {
		add("parameters", "application/json", `form-data; name="UpdateParameters"`, []byte(parameters))
	}
	if file != nil {
		add("file", "application/octet-stream", `form-data; name="UpdateFile"; filename="`+name+`"`, file)
	}
	if oem != "" {
		add("oem", "application/json", `form-data; name="OemParameters"`, []byte(oem))
	}
	require.NoError(t, w.Close())
	return &out, w.FormDataContentType()
}

func (c *client) upload(parameters, name string, file []byte) reply {
	c.t.Helper()
	body, kind := multipartBody(c.t, parameters, name, file, "")
	out, err := c.request(c.t.Context(), http.MethodPost, update+"/update-multipart", body,
		http.Header{"Content-Type": {kind}})
	require.NoError(c.t, err)
	return out
}

// follow polls a task until it is no longer running and returns its last page.
func (c *client) follow(uri string) reply {
	c.t.Helper()
	var last reply
	require.Eventually(c.t, func() bool {
		last = c.get(uri)
		return last.status == http.StatusOK && last.get("TaskState") != "Running"
	}, 20*time.Second, 5*time.Millisecond, "task %s", uri)
	return last
}

func (c *client) taskURI(r reply) string {
	c.t.Helper()
	require.Equal(c.t, http.StatusAccepted, r.status, string(r.raw))
	uri := r.header.Get("Location")
	require.NotEmpty(c.t, uri)
	return uri
}

func (c *client) version(component string) string {
	c.t.Helper()
	v, _ := c.get(inventory + component).get("Version").(string)
	return v
}

// awaitUp polls the service root until the BMC answers.
func (c *client) awaitUp() {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		r, err := c.request(c.t.Context(), http.MethodGet, root, nil, nil)
		return err == nil && r.status == http.StatusOK
	}, 20*time.Second, 5*time.Millisecond)
}

func pldm(t *testing.T, version string, components ...firmwarepackage.Component) []byte {
	t.Helper()
	out, err := firmwarepackage.Build(firmwarepackage.Spec{Version: version, Components: components})
	require.NoError(t, err)
	return out
}

func messageIDs(r reply) []string {
	var out []string
	list, _ := r.get("Messages").([]any)
	for _, m := range list {
		id, _ := m.(map[string]any)["MessageId"].(string)
		out = append(out, id)
	}
	return out
}

func errorID(r reply) string {
	list, _ := r.get("error", "@Message.ExtendedInfo").([]any)
	if len(list) == 0 {
		return ""
	}
	id, _ := list[0].(map[string]any)["MessageId"].(string)
	return id
}
