// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"strconv"
	"time"

	"github.com/stmcginnis/gofish/schemas"

	"github.com/rackbus/rackbus/pkg/product"
)

const octetStream = "application/octet-stream"

// UploadRequest is one image to be installed.
type UploadRequest struct {
	// File is the image; it may be read more than once. Size is its length and
	// Name its base name.
	File io.ReaderAt
	Size int64
	Name string

	// Targets are inventory or chassis URIs. Empty lets the package decide: it is
	// sent as an empty list, unless Parameters has a target of its own.
	Targets     []string
	ForceUpdate bool
	// ApplyTime is sent with a multipart push when not empty.
	ApplyTime schemas.OperationApplyTime
	// Parameters are vendor members of UpdateParameters, OemParameters is a vendor
	// part of its own, sent last. An update that has either is refused where the
	// device takes no multipart push.
	Parameters    map[string]any
	OemParameters json.RawMessage
	// ImageURI, when set, is where the device can fetch the image itself
	// (SimpleUpdate), with TransferProtocol, for example HTTPS.
	ImageURI         string
	TransferProtocol schemas.TransferProtocolType

	// Limit overrides the time budget of the upload.
	Limit time.Duration
	// Progress, when set, is told how many bytes were handed to the device. It is
	// called from another goroutine, never after the upload has returned.
	Progress func(sent, total int64)
}

// UploadResult is what the device answered to an image.
type UploadResult struct {
	// Task is the update task; zero when the device named none.
	Task TaskRef
	// Status is the HTTP status of the answer.
	Status int
	// Messages are the messages of the answer.
	Messages []schemas.Message
	// Result is the member Result of the answer, by which LiteOn's shelves tell whether
	// they took an image; empty mostly.
	Result string
}

var (
	// ErrAcceptedWithoutTask is wrapped when the device took the image but named
	// no task. The update may be running; only the versions can tell.
	ErrAcceptedWithoutTask = errors.New("the device accepted the image without naming a task")

	errStalled = errors.New("the device stopped taking the image")
	errBudget  = errors.New("the upload took too long")
)

// Upload sends an image by the best way the device advertises: multipart or
// plain push, in the order of the profile, else SimpleUpdate if the request names
// an ImageURI. Only a device that advertises nothing gets a push to the usual
// path of the product.
func (c *Client) Upload(ctx context.Context, s *UpdateService, u UploadRequest) (UploadResult, error) {
	multipartFirst := c.profile.Update != product.UpdatePush
	vendorParts := len(u.Parameters) > 0 || len(u.OemParameters) > 0
	switch {
	case s.MultipartURI != "" && (multipartFirst || vendorParts || s.PushURI == ""):
		return c.UploadMultipart(ctx, s, u)
	case vendorParts && (s.PushURI != "" || s.SimpleUpdateURI != ""):
		// The device would install the image without what the vendor asks for.
		return UploadResult{}, &Error{Op: "upload firmware", Code: CodeFailedPrecondition,
			reason: "the image needs vendor parameters, which the device takes only by a multipart push", cause: ErrNoUpdateMethod}
	case s.PushURI != "":
		return c.UploadPush(ctx, s, u)
	case s.SimpleUpdateURI != "" && u.ImageURI != "":
		return c.SimpleUpdate(ctx, s, u)
	case s.SimpleUpdateURI != "":
		return UploadResult{}, &Error{Op: "upload firmware", Code: CodeFailedPrecondition,
			reason: "the device only fetches images itself", cause: ErrNoUpdateMethod}
	case multipartFirst && c.profile.MultipartPath != "":
		return c.UploadMultipart(ctx, s, u)
	case c.profile.PushPath != "":
		return c.UploadPush(ctx, s, u)
	default:
		return UploadResult{}, &Error{Op: "upload firmware", Code: CodeFailedPrecondition, cause: ErrNoUpdateMethod}
	}
}

// UploadMultipart sends an image to MultipartHttpPushUri (DSP0266, multipart
// HTTP push updates).
func (c *Client) UploadMultipart(ctx context.Context, s *UpdateService, u UploadRequest) (UploadResult, error) {
	const op = "upload firmware"
	path := s.MultipartURI
	if path == "" {
		path = c.profile.MultipartPath
	}
	b, err := multipartBody(u)
	if err != nil {
		return UploadResult{}, &Error{Op: op, Code: CodeInvalidArgument, cause: err}
	}
	return c.upload(ctx, op, s, u, path, b, nil)
}

// UploadPush sends an image as it is to HttpPushUri, after it has set the push
// targets and the force option where they differ.
func (c *Client) UploadPush(ctx context.Context, s *UpdateService, u UploadRequest) (UploadResult, error) {
	path := s.PushURI
	if path == "" {
		path = c.profile.PushPath
	}
	if err := c.setPushOptions(ctx, s, u.Targets, u.ForceUpdate); err != nil {
		return UploadResult{}, err
	}
	header := http.Header{}
	header.Set("Expect", "100-continue")
	return c.upload(ctx, "upload firmware", s, u, path, rawBody(u), header)
}

// SimpleUpdate tells the device to fetch an image itself.
func (c *Client) SimpleUpdate(ctx context.Context, s *UpdateService, u UploadRequest) (UploadResult, error) {
	const op = "start firmware update"
	if s.SimpleUpdateURI == "" || u.ImageURI == "" {
		return UploadResult{}, invalid(op, "SimpleUpdate needs an action target and an image URI")
	}
	params := map[string]any{"ImageURI": u.ImageURI}
	if u.TransferProtocol != "" {
		params["TransferProtocol"] = u.TransferProtocol
	}
	if len(u.Targets) > 0 {
		params["Targets"] = u.Targets
	}
	if u.ForceUpdate {
		params["ForceUpdate"] = true
	}
	b, err := jsonBody(params)
	if err != nil {
		return UploadResult{}, &Error{Op: op, Code: CodeInvalidArgument, cause: err}
	}
	a, err := c.send(ctx, request{op: op, method: http.MethodPost, path: s.SimpleUpdateURI, body: b})
	if err != nil {
		return UploadResult{}, err
	}
	return c.uploaded(op, a)
}

func (c *Client) upload(ctx context.Context, op string, s *UpdateService, u UploadRequest, path string, b *body, header http.Header) (UploadResult, error) {
	if u.File == nil || u.Size <= 0 || u.Name == "" {
		return UploadResult{}, invalid(op, "an upload needs a file with a name and a size")
	}
	if s.MaxImageSize > 0 && u.Size > s.MaxImageSize {
		return UploadResult{}, &Error{Op: op, Code: CodeFailedPrecondition,
			reason: fmt.Sprintf("%d bytes, at most %d", u.Size, s.MaxImageSize), cause: ErrImageTooLarge}
	}
	budget := u.Limit
	if budget <= 0 {
		budget = c.timing.uploadBudget(u.Size)
	}
	answerLimit := c.timing.UploadAnswer
	if c.profile.UploadAnswer > 0 {
		answerLimit = min(answerLimit, c.profile.UploadAnswer)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, budget, errBudget)
	defer cancel()
	ctx, watch := watchStall(ctx, c.timing.UploadStall, answerLimit)
	defer watch.stop()
	open := b.open
	b.open = func() io.Reader { return watch.reader(open(), b.size, u.Progress) }
	r := request{op: op, method: http.MethodPost, path: path, body: b, header: header, unlimited: true}
	a, err := c.send(ctx, r)
	if statusOf(err) == http.StatusExpectationFailed && header.Get("Expect") != "" {
		// RFC 9110 15.5.18: the same without the expectation.
		r.header = nil
		a, err = c.send(ctx, r)
	}
	if err != nil {
		if e, ok := asError(err); ok && e.Status == http.StatusMethodNotAllowed {
			e.Code = CodeFailedPrecondition
			e.reason = "this way of uploading is not supported by the device"
		}
		return UploadResult{}, err
	}
	return c.uploaded(op, a)
}

// uploaded finds the task in the answer to an accepted image.
func (c *Client) uploaded(op string, a *answer) (UploadResult, error) {
	result := UploadResult{Status: a.status}
	d, err := a.document()
	if err == nil {
		result.Messages = extendedInfo(d)
		if len(result.Messages) == 0 {
			result.Messages = decodeMessages(d.list("Messages"))
		}
		c.scrubMessages(result.Messages)
		result.Result = c.scrub(clip(d.text("Result")))
	}
	if task, ok := c.taskOf(a, d, result.Messages); ok {
		result.Task = task
		c.log.Info("update task started", slog.String("op", op), slog.String("task", task.String()))
		return result, nil
	}
	return result, &Error{Op: op, Method: http.MethodPost, Path: a.path, Status: a.status, Code: CodeInvalidResponse,
		Sent: true, cause: ErrAcceptedWithoutTask}
}

// rawBody is the image itself.
func rawBody(u UploadRequest) *body {
	return &body{contentType: octetStream, size: u.Size, open: func() io.Reader { return io.NewSectionReader(u.File, 0, u.Size) }}
}

// multipartBody wraps the image between its JSON parts; the length is known
// beforehand, since BMCs do not take chunked bodies.
func multipartBody(u UploadRequest) (*body, error) {
	var head, tail bytes.Buffer
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	if err := writeJSONPart(w, "UpdateParameters", updateParameters(u)); err != nil {
		return nil, err
	}
	h := textproto.MIMEHeader{}
	h.Set("Content-Disposition", `form-data; name="UpdateFile"; filename=`+strconv.Quote(u.Name))
	h.Set("Content-Type", octetStream)
	if _, err := w.CreatePart(h); err != nil {
		return nil, err
	}
	head.Write(form.Bytes())
	form.Reset()
	if len(u.OemParameters) > 0 {
		if err := writeJSONPart(w, "OemParameters", u.OemParameters); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	tail.Write(form.Bytes())
	return &body{
		contentType: w.FormDataContentType(),
		size:        int64(head.Len()) + u.Size + int64(tail.Len()),
		open: func() io.Reader {
			return io.MultiReader(bytes.NewReader(head.Bytes()), io.NewSectionReader(u.File, 0, u.Size), bytes.NewReader(tail.Bytes()))
		},
	}, nil
}

func writeJSONPart(w *multipart.Writer, name string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	h := textproto.MIMEHeader{}
	h.Set("Content-Disposition", `form-data; name=`+strconv.Quote(name))
	h.Set("Content-Type", jsonType)
	part, err := w.CreatePart(h)
	if err != nil {
		return err
	}
	_, err = part.Write(raw)
	return err
}

// updateParameters builds the JSON part. ForceUpdate is left out when false,
// since some BMCs refuse members they do not know.
func updateParameters(u UploadRequest) map[string]any {
	params := map[string]any{}
	for key, value := range u.Parameters {
		params[key] = value
	}
	_, targets := params["Targets"]
	_, pushTargets := params["HttpPushUriTargets"]
	if !targets && !pushTargets {
		params["Targets"] = append([]string{}, u.Targets...)
	}
	if u.ForceUpdate {
		params["ForceUpdate"] = true
	}
	if u.ApplyTime != "" {
		params["@Redfish.OperationApplyTime"] = u.ApplyTime
	}
	return params
}
