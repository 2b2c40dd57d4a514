// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/reqlog"
)

// copied sends the artifact to the tray with nothing but net/http, with the connection settings of the agents, and
// returns the throughput in MB/s. It returns once the tray is through with it.
func (a largeArtifact) copied(ctx context.Context, t *testing.T, rack *sim.Rack, tray *sim.Device) float64 {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig:    &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}},
		DisableCompression: true, DisableKeepAlives: true, WriteBufferSize: 32 << 10,
	}}
	file, err := os.Open(a.path)
	require.NoError(t, err)
	defer file.Close()
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	part := func(name, file, contentType string) io.Writer {
		h := textproto.MIMEHeader{}
		h.Set("Content-Disposition", `form-data; name="`+name+`"`+file)
		h.Set("Content-Type", contentType)
		out, err := w.CreatePart(h)
		require.NoError(t, err)
		return out
	}
	_, err = part("UpdateParameters", "", "application/json").Write([]byte(`{"Targets":[],"ForceUpdate":true}`))
	require.NoError(t, err)
	part("UpdateFile", `; filename="`+filepath.Base(a.path)+`"`, "application/octet-stream")
	head := bytes.Clone(form.Bytes())
	require.NoError(t, w.Close())
	tail := form.Bytes()[len(head):]

	before := len(rack.Uploads(tray.ID()))
	body := io.MultiReader(bytes.NewReader(head), io.NewSectionReader(file, 0, a.size), bytes.NewReader(tail))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, tray.URL()+"/redfish/v1/UpdateService/update-multipart", io.NopCloser(body))
	require.NoError(t, err)
	req.ContentLength = int64(form.Len()) + a.size
	req.Header.Set("Content-Type", w.FormDataContentType())
	req.SetBasicAuth(tray.Username(), tray.Password())
	res, err := client.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	require.Equal(t, http.StatusAccepted, res.StatusCode)
	var task struct {
		ID string `json:"@odata.id"`
	}
	require.NoError(t, json.NewDecoder(res.Body).Decode(&task))
	awaitTask(ctx, t, client, tray, task.ID)
	uploads, err := rack.WaitRequests(ctx, tray.ID(), reqlog.Filter{Uploads: true}, before+1)
	require.NoError(t, err)
	return a.throughput(t, uploads[before])
}

// awaitTask polls a task of the tray until it has completed.
func awaitTask(ctx context.Context, t *testing.T, client *http.Client, tray *sim.Device, path string) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, tray.URL()+path, nil)
		require.NoError(t, err)
		req.SetBasicAuth(tray.Username(), tray.Password())
		res, err := client.Do(req)
		require.NoError(t, err)
		var task struct{ TaskState string }
		err = json.NewDecoder(res.Body).Decode(&task)
		require.NoError(t, res.Body.Close())
		require.NoError(t, err)
		if task.TaskState == "Completed" {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("task %s is still %s", path, task.TaskState)
		}
	}
}
