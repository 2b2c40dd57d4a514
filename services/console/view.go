// SPDX-License-Identifier: Apache-2.0

package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"mime"
	"net/http"
	"net/url"
	"path"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

//go:embed templates static
var embedded embed.FS

// assets are the files of the pages. Their addresses carry their digest, so that
// browsers may keep them for good.
type assets struct{ files map[string]asset }

type asset struct {
	content []byte
	kind    string
	version string
}

func loadAssets() (*assets, error) {
	a := &assets{files: map[string]asset{}}
	err := fs.WalkDir(embedded, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := embedded.ReadFile(name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(content)
		a.files[path.Base(name)] = asset{content, mime.TypeByExtension(path.Ext(name)), hex.EncodeToString(sum[:8])}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("load console files: %w", err)
	}
	return a, nil
}

// url returns the address of a file.
func (a *assets) url(name string) (string, error) {
	f, ok := a.files[name]
	if !ok {
		return "", fmt.Errorf("no file %q", name)
	}
	return "/static/" + name + "?v=" + f.version, nil
}

func (a *assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f, ok := a.files[r.PathValue("file")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", f.kind)
	if r.URL.Query().Get("v") == f.version {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.content))
}

func loadTemplates(a *assets) (*template.Template, error) {
	t, err := template.New("").Funcs(template.FuncMap{
		"asset":      a.url,
		"stateLabel": stateLabel,
		"stateWord":  stateWord,
		"stateIcon":  stateIcon,
		"terminal":   terminal,
		"typeLabel":  typeLabel,
		"when":       when,
		"iso":        iso,
		"took":       took,
		"bytes":      byteCount,
		"jobURL":     func(id string) string { return "/jobs/" + url.PathEscape(id) },
		"rackURL":    func(id string) string { return "/racks/" + url.PathEscape(id) },
		"nodeURL": func(rack, node string) string {
			return "/racks/" + url.PathEscape(rack) + "/nodes/" + url.PathEscape(node)
		},
		"statuses":  func() []statusInfo { return statuses[:] },
		"protoTime": func(t *timestamppb.Timestamp) time.Time { return timeOf(t) },
	}).ParseFS(embedded, "templates/*.html")
	if err != nil {
		return nil, fmt.Errorf("load console pages: %w", err)
	}
	return t, nil
}

// render writes a page as a whole or not at all.
func (c *Console) render(w http.ResponseWriter, r *http.Request, code int, name string, data any) {
	var b bytes.Buffer
	if err := c.templates.ExecuteTemplate(&b, name, data); err != nil {
		c.log.ErrorContext(r.Context(), "console page not rendered", "page", name, "err", err)
		http.Error(w, "the page could not be made; see the log of the API", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = b.WriteTo(w) // a browser that is gone is no fault of ours
}

// faultPage tells what went wrong.
type faultPage struct {
	page
	Message string
	Code    int
	// Back is where to go on.
	Back string
}

// fail answers with an error of the API.
func (c *Console) fail(w http.ResponseWriter, r *http.Request, p page, err error) {
	code := httpStatus(status.Code(err))
	if code == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "2")
	}
	p.Live = ""
	view := faultPage{page: p, Code: code, Message: status.Convert(err).Message(), Back: "/"}
	if id := r.PathValue("job"); id != "" && code != http.StatusNotFound {
		view.Back = "/jobs/" + url.PathEscape(id)
	}
	view.Title = http.StatusText(code)
	c.render(w, r, code, "fault", view)
}

func (c *Console) missing(w http.ResponseWriter, r *http.Request, p page, message string) {
	c.fail(w, r, p, status.Error(codes.NotFound, message))
}

func (c *Console) serveMissing(w http.ResponseWriter, r *http.Request, p page) {
	c.missing(w, r, p, "There is no page "+r.URL.Path+".")
}

// httpStatus is the status of an answer for a code of the API.
func httpStatus(code codes.Code) int {
	switch code {
	case codes.NotFound:
		return http.StatusNotFound
	case codes.InvalidArgument:
		return http.StatusBadRequest
	case codes.FailedPrecondition, codes.AlreadyExists, codes.Aborted:
		return http.StatusConflict
	case codes.PermissionDenied:
		return http.StatusForbidden
	case codes.Unauthenticated:
		return http.StatusUnauthorized
	case codes.Unavailable:
		return http.StatusServiceUnavailable
	case codes.ResourceExhausted:
		return http.StatusTooManyRequests
	case codes.DeadlineExceeded:
		return http.StatusGatewayTimeout
	case codes.Unimplemented:
		return http.StatusNotImplemented
	default:
		return http.StatusInternalServerError
	}
}

// stateIcon is the symbol of a state; a symbol and a word always go together.
func stateIcon(s rackbusv1.JobState) string {
	switch s {
	case rackbusv1.JobState_JOB_STATE_QUEUED:
		return "waiting"
	case rackbusv1.JobState_JOB_STATE_RUNNING:
		return "working"
	case rackbusv1.JobState_JOB_STATE_CANCELLATION_REQUESTED:
		return "stopping"
	case rackbusv1.JobState_JOB_STATE_COMPLETED:
		return "ok"
	case rackbusv1.JobState_JOB_STATE_FAILED, rackbusv1.JobState_JOB_STATE_TIMED_OUT, rackbusv1.JobState_JOB_STATE_PARTIALLY_FAILED:
		return "failed"
	case rackbusv1.JobState_JOB_STATE_CANCELLED, rackbusv1.JobState_JOB_STATE_TERMINATED, rackbusv1.JobState_JOB_STATE_SUPERSEDED:
		return "withdrawn"
	default:
		return "none"
	}
}

func timeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// when is a time for people. All times are UTC, as in logs.
func when(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}

func iso(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// took is a duration for people.
func took(d time.Duration) string {
	switch {
	case d < 0:
		return ""
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min %02d s", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%d h %02d min", int(d.Hours()), int(d.Minutes())%60)
}

func byteCount(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}
