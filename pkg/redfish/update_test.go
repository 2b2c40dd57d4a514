// SPDX-License-Identifier: Apache-2.0

package redfish_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/redfish"
)

const taskBody = `{"@odata.id":"` + tasksURI + `/7","@odata.type":"#Task.v1_4_3.Task","Id":"7","TaskState":"Running"}`

func image(size int) redfish.UploadRequest {
	return redfish.UploadRequest{File: bytes.NewReader(bytes.Repeat([]byte("F"), size)), Size: int64(size), Name: "nvfw_GB200-P4972.fwpkg"}
}

func (b *bmc) updateService(body string) {
	b.on("GET "+updateURI, ok(body))
}

// upload sends an image by whatever way the device advertises.
func upload(t *testing.T, c *redfish.Client, u redfish.UploadRequest) (redfish.UploadResult, error) {
	t.Helper()
	svc, err := c.UpdateService(t.Context())
	require.NoError(t, err)
	return c.Upload(t.Context(), svc, u)
}

func TestUploadFollowsWhatIsAdvertised_E18(t *testing.T) {
	t.Parallel()
	const simple = `"Actions":{"#UpdateService.SimpleUpdate":{"target":"/simple"}}`
	for _, c := range []struct {
		name, nodeType, service, path string
	}{
		{"multipart", gb200, `{"MultipartHttpPushUri":"/mp","HttpPushUri":"/push"}`, "/mp"},
		{"plain push", gb200, `{"HttpPushUri":"/push",` + simple + `}`, "/push"},
		{"simple update", gb200, `{` + simple + `}`, "/simple"},
		{"nothing, tray", gb200, `{}`, multipartURI},
		{"foreign push URI", gb200, `{"MultipartHttpPushUri":"https://evil.example/up","HttpPushUri":"/push"}`, multipartURI},
		{"shelf prefers the plain push", liteon, `{"MultipartHttpPushUri":"/mp","HttpPushUri":"/push"}`, "/push"},
		{"shelf without plain push", liteon, `{"MultipartHttpPushUri":"/mp"}`, "/mp"},
		{"nothing, shelf", liteon, `{}`, pushURI},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBMC(t)
			b.updateService(c.service)
			b.on("POST "+c.path, reply(202, taskBody))
			u := image(4096)
			u.ImageURI, u.TransferProtocol = "https://files.example/fw.bin", "HTTPS"
			result, err := upload(t, b.client(c.nodeType), u)
			require.NoError(t, err)
			require.Equal(t, redfish.TaskByID("7"), result.Task)
			posts := b.requests("POST", "/")
			require.Len(t, posts, 1)
			require.Equal(t, c.path, posts[0].path)
		})
	}
	b := newBMC(t)
	b.updateService(`{` + simple + `}`)
	_, err := upload(t, b.client(gb200), image(1))
	require.ErrorIs(t, err, redfish.ErrNoUpdateMethod)
}

func TestMultipartBody(t *testing.T) {
	t.Parallel()
	b := newBMC(t)
	b.updateService(`{"MultipartHttpPushUri":"` + multipartURI + `"}`)
	b.on("POST "+multipartURI, reply(202, taskBody))
	u := image(100_000)
	u.Targets = []string{"/redfish/v1/Chassis/HGX_Chassis_0"}
	u.ForceUpdate = true
	u.OemParameters = json.RawMessage(`{"ImageType":"PLDM"}`)
	var sent int64
	u.Progress = func(n, total int64) {
		require.GreaterOrEqual(t, n, sent)
		require.LessOrEqual(t, n, total)
		sent = n
	}
	_, err := upload(t, b.client(gb200), u)
	require.NoError(t, err)
	got := b.requests("POST", multipartURI)[0]
	require.Equal(t, fmt.Sprint(len(got.body)), got.header.Get("Content-Length"))
	require.EqualValues(t, len(got.body), sent)
	_, params, err := mime.ParseMediaType(got.header.Get("Content-Type"))
	require.NoError(t, err)
	form := multipart.NewReader(strings.NewReader(got.body), params["boundary"])
	want := []struct{ name, contentType, file, json string }{
		{"UpdateParameters", "application/json", "", `{"Targets":["/redfish/v1/Chassis/HGX_Chassis_0"],"ForceUpdate":true}`},
		{"UpdateFile", "application/octet-stream", "nvfw_GB200-P4972.fwpkg", ""},
		{"OemParameters", "application/json", "", `{"ImageType":"PLDM"}`},
	}
	for _, w := range want {
		part, err := form.NextPart()
		require.NoError(t, err)
		require.Equal(t, w.name, part.FormName())
		require.Equal(t, w.contentType, part.Header.Get("Content-Type"))
		require.Equal(t, w.file, part.FileName())
		content, err := io.ReadAll(part)
		require.NoError(t, err)
		if w.json != "" {
			require.JSONEq(t, w.json, string(content))
		} else {
			require.Equal(t, bytes.Repeat([]byte("F"), 100_000), content)
		}
	}
	_, err = form.NextPart()
	require.ErrorIs(t, err, io.EOF)
}

func TestVendorParametersAreNeverDropped(t *testing.T) {
	t.Parallel()
	const push, both = `{"HttpPushUri":"/push"}`, `{"HttpPushUri":"/push","MultipartHttpPushUri":"/mp"}`
	u := image(16)
	u.OemParameters = json.RawMessage(`{"ImageType":"BMC"}`)
	b := newBMC(t)
	b.on("POST /mp", reply(202, taskBody))
	b.updateService(push)
	_, err := upload(t, b.client(gb200), u)
	require.ErrorIs(t, err, redfish.ErrNoUpdateMethod)
	require.Equal(t, redfish.CodeFailedPrecondition, redfish.CodeOf(err))
	require.Empty(t, b.requests("POST", "/"))

	b.updateService(both)
	_, err = upload(t, b.client(liteon), u)
	require.NoError(t, err, "it goes where they can be said, whatever the product prefers")

	u.OemParameters = json.RawMessage(`{"ImageType":`)
	_, err = upload(t, b.client(gb200), u)
	require.Equal(t, redfish.CodeInvalidArgument, redfish.CodeOf(err))
	require.Len(t, b.requests("POST", "/"), 1)
}

func TestMultipartParameters(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*redfish.UploadRequest)
		want   string
	}{
		"nothing":        {func(*redfish.UploadRequest) {}, `{"Targets":[]}`},
		"vendor targets": {func(u *redfish.UploadRequest) { u.Parameters = map[string]any{"HttpPushUriTargets": []string{"a"}} }, `{"HttpPushUriTargets":["a"]}`},
		"apply time":     {func(u *redfish.UploadRequest) { u.ApplyTime = "OnReset" }, `{"Targets":[],"@Redfish.OperationApplyTime":"OnReset"}`},
	} {
		b := newBMC(t)
		b.updateService(`{"MultipartHttpPushUri":"` + multipartURI + `"}`)
		b.on("POST "+multipartURI, func(w http.ResponseWriter, r *http.Request) {
			if err := r.ParseMultipartForm(1 << 20); err != nil {
				w.WriteHeader(400)
				return
			}
			reply(202, `{"Id":"1","Messages":[{"MessageId":"`+name+`","Message":`+fmt.Sprintf("%q", r.FormValue("UpdateParameters"))+`}]}`)(w, r)
		})
		u := image(10)
		c.change(&u)
		result, err := upload(t, b.client(gb200), u)
		require.NoError(t, err)
		require.JSONEq(t, c.want, result.Messages[0].Message, name)
	}
}

func TestTaskReferences_E1_E3_E5(t *testing.T) {
	t.Parallel()
	seven := redfish.TaskByID("7")
	monitored := seven
	monitored.Monitor = tasksURI + "/7/Monitor"
	for _, c := range []struct {
		name   string
		answer http.HandlerFunc
		want   redfish.TaskRef
	}{
		{"E1 relative location, empty body", reply(202, "", "Location", "../TaskService/Tasks/7", "Content-Length", "0"), seven},
		{"location with query", reply(202, "", "Location", tasksURI+"/7?x=1#y"), seven},
		{"location of the monitor below the task", reply(202, "", "Location", tasksURI+"/7/Monitor"), monitored},
		{"opaque monitor", reply(202, "", "Location", "/redfish/v1/TaskService/TaskMonitors/abc"), redfish.TaskRef{Monitor: "/redfish/v1/TaskService/TaskMonitors/abc"}},
		{"E3 task in the body only", reply(202, taskBody), seven},
		{"E3 monitor in the body only", reply(202, `{"TaskMonitor":"`+tasksURI+`/7/Monitor"}`), monitored},
		{"body and monitor", reply(202, taskBody, "Location", tasksURI+"/7/Monitor"), monitored},
		{"id only", reply(200, `{"Id":"7"}`), seven},
		{"E5 path in arguments", reply(202, `{"Messages":[{"MessageId":"Update.1.0.X","MessageArgs":[1,"see /redfish/v1/TaskService/Tasks/7 now"]}]}`), seven},
		{"E5 job id in a known message", reply(202, `{"@Message.ExtendedInfo":[{"MessageId":"IDRAC.2.8.JCP027","MessageArgs":["JID_123"]}]}`), redfish.TaskByID("JID_123")},
		{"HMC task", reply(202, `{"@odata.id":"`+tasksURI+`/HGX_3"}`), redfish.TaskByID("HGX_3")},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBMC(t)
			b.updateService(`{"MultipartHttpPushUri":"` + multipartURI + `"}`)
			b.on("POST "+multipartURI, c.answer)
			result, err := upload(t, b.client(gb200), image(16))
			require.NoError(t, err)
			require.Equal(t, c.want, result.Task)
		})
	}
}

func TestAcceptedWithoutTask_E6(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]http.HandlerFunc{
		"200 empty":                reply(200, ""),
		"202 empty":                reply(202, ""),
		"HTML":                     reply(200, "<html/>"),
		"job id, unknown message":  reply(202, `{"@Message.ExtendedInfo":[{"MessageId":"IDRAC.2.8.SYS999","MessageArgs":["JID_1"]}]}`),
		"foreign location":         reply(202, "", "Location", "https://evil.example"+tasksURI+"/7"),
		"update service as answer": reply(200, `{"@odata.id":"`+updateURI+`","@odata.type":"#UpdateService.v1_9_0.UpdateService","Id":"UpdateService"}`),
	} {
		t.Run(name, func(t *testing.T) {
			b := newBMC(t)
			b.updateService(`{"HttpPushUri":"` + pushURI + `"}`)
			b.on("POST "+pushURI, answer)
			result, err := upload(t, b.client(gb200), image(16))
			require.ErrorIs(t, err, redfish.ErrAcceptedWithoutTask)
			require.True(t, asError(t, err).OutcomeUnknown())
			require.True(t, result.Task.IsZero())
			require.NotZero(t, result.Status)
		})
	}
}

func TestPushWaitsForContinue(t *testing.T) {
	t.Parallel()
	b := newBMC(t)
	b.updateService(`{"HttpPushUri":"` + pushURI + `"}`)
	var got string
	b.on("POST "+pushURI, func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		got = string(raw)
		reply(202, taskBody)(w, r)
	})
	_, err := upload(t, b.client(liteon), image(70_000))
	require.NoError(t, err)
	require.Len(t, got, 70_000)
	post := b.requests("POST", pushURI)[0]
	require.Equal(t, "100-continue", post.header.Get("Expect"))
	require.Equal(t, "application/octet-stream", post.header.Get("Content-Type"))

	b.on("POST "+pushURI, reply(417, ""), reply(202, taskBody))
	_, err = upload(t, b.client(liteon), image(70_000))
	require.NoError(t, err)
	posts := b.requests("POST", pushURI)
	require.Len(t, posts, 3)
	require.Empty(t, posts[2].header.Get("Expect"))
	require.Len(t, posts[2].body, 70_000)

	b.on("POST "+pushURI, reply(405, ""))
	_, err = upload(t, b.client(liteon), image(70_000))
	require.Equal(t, redfish.CodeFailedPrecondition, redfish.CodeOf(err))
}

func TestPushOptionsAreSetFirst(t *testing.T) {
	t.Parallel()
	b := newBMC(t)
	b.updateService(`{"HttpPushUri":"/push","HttpPushUriTargets":["/old"],"HttpPushUriOptions":{"ForceUpdate":false}}`)
	b.on("PATCH "+updateURI, reply(204, ""))
	b.on("POST /push", reply(202, taskBody))
	u := image(8)
	u.Targets, u.ForceUpdate = []string{"/new"}, true
	_, err := upload(t, b.client(gb200), u)
	require.NoError(t, err)
	patches := b.requests("PATCH", updateURI)
	require.Len(t, patches, 1)
	require.JSONEq(t, `{"HttpPushUriTargets":["/new"],"HttpPushUriOptions":{"ForceUpdate":true}}`, patches[0].body)

	b.updateService(`{"HttpPushUri":"/push"}`)
	_, err = upload(t, b.client(gb200), u)
	require.Equal(t, redfish.CodeFailedPrecondition, redfish.CodeOf(err), "a target that cannot be set is not dropped")
	require.Len(t, b.requests("POST", "/push"), 1)
}

func TestUploadRefusals(t *testing.T) {
	t.Parallel()
	b := newBMC(t)
	b.updateService(`{"ServiceEnabled":false}`)
	_, err := b.client(gb200).UpdateService(t.Context())
	require.ErrorIs(t, err, redfish.ErrUpdateServiceDisabled)

	b.updateService(`{"MultipartHttpPushUri":"` + multipartURI + `","MaxImageSizeBytes":"15"}`)
	_, err = upload(t, b.client(gb200), image(16))
	require.ErrorIs(t, err, redfish.ErrImageTooLarge)
	_, err = upload(t, b.client(gb200), redfish.UploadRequest{Name: "x"})
	require.Equal(t, redfish.CodeInvalidArgument, redfish.CodeOf(err))
	require.Empty(t, b.requests("POST", "/"))

	b.on("POST "+multipartURI, refuse(400, "Update.1.0.ImageRejected", "wrong device"))
	_, err = upload(t, b.client(gb200), image(4))
	require.Equal(t, "Update.1.0.ImageRejected", asError(t, err).MessageID)
	require.False(t, asError(t, err).OutcomeUnknown())
}

func TestStalledUploadFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newPipeBMC(t)
		defer b.close()
		b.updateService(`{"HttpPushUri":"` + pushURI + `"}`)
		release := make(chan struct{})
		defer close(release)
		b.on("POST "+pushURI, func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.CopyN(io.Discard, r.Body, 1<<20)
			<-release
		})
		c := b.client(liteon, defaults)
		started := time.Now()
		_, err := upload(t, c, image(8<<20))
		require.Equal(t, redfish.CodeTimeout, redfish.CodeOf(err))
		require.True(t, asError(t, err).OutcomeUnknown())
		require.Less(t, time.Since(started), 70*time.Second)
	})
}

func TestSlowUploadPasses_E17(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newPipeBMC(t)
		defer b.close()
		b.updateService(`{"HttpPushUri":"` + pushURI + `"}`)
		const size, piece = 4 << 20, 64 << 10
		b.on("POST "+pushURI, func(w http.ResponseWriter, r *http.Request) {
			for {
				if _, err := io.CopyN(io.Discard, r.Body, piece); err != nil {
					break
				}
				time.Sleep(10 * time.Second)
			}
			reply(202, taskBody)(w, r)
		})
		u := image(size)
		steps := 0
		u.Progress = func(int64, int64) { steps++ }
		started := time.Now()
		_, err := upload(t, b.client(liteon, defaults), u)
		require.NoError(t, err)
		require.Greater(t, time.Since(started), 10*time.Minute)
		require.Greater(t, steps, 20)

		// At a tenth of that speed the total budget ends it.
		u.Limit = time.Minute
		_, err = upload(t, b.client(liteon, defaults), u)
		require.Equal(t, redfish.CodeTimeout, redfish.CodeOf(err))
	})
}

func TestSetApplyTime(t *testing.T) {
	t.Parallel()
	const onReset = `{"HttpPushUriOptions":{"HttpPushUriApplyTime":{"ApplyTime":"OnReset"}}}`
	const immediate = `{"HttpPushUriOptions":{"HttpPushUriApplyTime":{"ApplyTime":"Immediate"}}}`
	b := newBMC(t)
	b.updateService(onReset)
	require.NoError(t, b.client(liteon).SetApplyTime(t.Context(), redfish.ShelfApplyTime))
	require.Empty(t, b.requests("PATCH", "/"), "it is set already")

	b.updateService(immediate)
	b.on("PATCH "+updateURI, reply(204, ""))
	require.NoError(t, b.client(liteon).SetApplyTime(t.Context(), redfish.ShelfApplyTime))
	require.JSONEq(t, onReset, b.requests("PATCH", "/")[0].body)

	b.on("PATCH "+updateURI, refuse(400, "Base.1.8.PatchValueAlreadyExists", "as it is"))
	require.NoError(t, b.client(liteon).SetApplyTime(t.Context(), redfish.ShelfApplyTime))
	b.on("PATCH "+updateURI, refuse(400, "Base.1.8.PropertyValueNotInList", "no"))
	err := b.client(liteon).SetApplyTime(t.Context(), redfish.ShelfApplyTime)
	require.Equal(t, "Base.1.8.PropertyValueNotInList", asError(t, err).MessageID)
	require.Error(t, b.client(liteon).SetApplyTime(t.Context(), "Tomorrow"))

	// A bare 400, but the value is in force.
	b.on("PATCH "+updateURI, reply(400, ""))
	b.on("GET "+updateURI, ok(immediate), ok(onReset))
	require.NoError(t, b.client(liteon).SetApplyTime(t.Context(), redfish.ShelfApplyTime))
}

func TestF7PatchWorksWithEveryKindOfETag(t *testing.T) {
	t.Parallel()
	const body = `{"HttpPushUriOptions":{"HttpPushUriApplyTime":{"ApplyTime":"Immediate"}}}`
	accept := func(allowed func(match []string) bool, status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if !allowed(r.Header.Values("If-Match")) {
				w.WriteHeader(status)
				return
			}
			w.WriteHeader(http.StatusNoContent)
		}
	}
	for _, c := range []struct {
		name, etag string
		status     int
		allowed    func(match []string) bool
	}{
		{"empty tag, fails with any", "", 412, func(m []string) bool { return len(m) == 0 }},
		{"tag of two quotes, fails with it", `""`, 412, func(m []string) bool { return len(m) == 0 || m[0] != `""` }},
		{"needs If-Match, gives no tag", "", 428, func(m []string) bool { return len(m) == 1 }},
		{"needs its tag", `"abc"`, 428, func(m []string) bool { return len(m) == 1 && m[0] == `"abc"` }},
		{"needs the weak prefix", `W/"abc"`, 412, func(m []string) bool { return len(m) == 1 && m[0] == `W/"abc"` }},
		{"fails with the weak prefix", `W/"abc"`, 412, func(m []string) bool { return len(m) == 1 && m[0] == `"abc"` }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBMC(t)
			b.on("GET "+updateURI, reply(200, body, "ETag", c.etag))
			b.on("PATCH "+updateURI, accept(c.allowed, c.status))
			require.NoError(t, b.client(liteon).SetApplyTime(t.Context(), redfish.ShelfApplyTime))
			patches := b.requests("PATCH", updateURI)
			require.LessOrEqual(t, len(patches), 2)
			for _, p := range patches {
				require.NotContains(t, p.header.Values("If-Match"), "")
			}
		})
	}
}

func TestWaitReadyNeedsGoodReadsInARow_E22(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newPipeBMC(t)
		defer b.close()
		busy := reply(503, "", "Retry-After", "20")
		b.on("GET "+updateURI, busy, busy, ok(`{}`), busy, busy, ok(`{}`))
		started := time.Now()
		require.NoError(t, b.client(gb200, defaults).WaitReady(t.Context()))
		require.Len(t, b.requests("GET", updateURI), 8)
		require.Equal(t, 4*20*time.Second+3*5*time.Second, time.Since(started))

		b.on("GET "+updateURI, busy)
		err := b.client(gb200, defaults).WaitReady(t.Context())
		require.Equal(t, redfish.CodeTimeout, redfish.CodeOf(err))
	})
}

// watchedFile fails the test when it is read after the upload is over.
type watchedFile struct {
	over, late atomic.Bool
}

func (f *watchedFile) ReadAt(p []byte, _ int64) (int, error) {
	if f.over.Load() {
		f.late.Store(true)
	}
	return len(p), nil
}

func TestFileIsLeftAloneAfterTheUpload(t *testing.T) {
	t.Parallel()
	b := newBMC(t)
	b.updateService(`{"MultipartHttpPushUri":"` + multipartURI + `"}`)
	c := b.client(gb200)
	svc, err := c.UpdateService(t.Context())
	require.NoError(t, err)
	b.srv.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusUnauthorized) // without reading the image
	})
	for range 8 {
		file := &watchedFile{}
		var late atomic.Bool
		_, err = c.Upload(t.Context(), svc, redfish.UploadRequest{File: file, Size: 4 << 20, Name: "x",
			Progress: func(int64, int64) {
				if file.over.Load() {
					late.Store(true)
				}
			}})
		file.over.Store(true)
		require.Error(t, err)
		runtime.Gosched()
		require.False(t, file.late.Load() || late.Load())
	}
}
