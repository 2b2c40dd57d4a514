// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"
	"time"

	"github.com/rackbus/rackbus/sim/firmwarepackage"
	"github.com/rackbus/rackbus/sim/reqlog"
)

// receiveMultipart takes a multipart push: UpdateParameters, UpdateFile and optionally OemParameters.
func (d *Device) receiveMultipart(r *http.Request) answer {
	if !d.has(PushMultipart) {
		return notFound(r.URL.Path)
	}
	if r.Method != http.MethodPost {
		return notAllowed(r.Method)
	}
	d.prepare(r)
	parts, err := r.MultipartReader()
	if err != nil {
		return unsupported(r, "The update has to be multipart/form-data.")
	}
	note := &reqlog.Upload{}
	reqlog.FromContext(r.Context()).Upload = note
	in := intake{note: note}
	for {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = in.take(r.Context(), part)
		}
		if err != nil {
			return badBody(r)
		}
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return answer{abort: true}
	}

	var parameters struct {
		Targets     []string
		ForceUpdate bool
	}
	switch {
	case in.malformed:
		return refusal(http.StatusBadRequest, "MalformedJSON", "The update parameters are not valid.")
	case note.Parameters == nil || in.file == nil:
		return refusal(http.StatusBadRequest, "MissingOrMalformedPart",
			"The update needs the parts UpdateParameters and UpdateFile.")
	case json.Unmarshal(note.Parameters, &parameters) != nil:
		return refusal(http.StatusBadRequest, "MalformedJSON", "The update parameters are not valid.")
	}
	note.Targets = parameters.Targets
	u := in.upload()
	u.targets, u.force, u.oem = parameters.Targets, parameters.ForceUpdate, note.OEM
	return d.begin(note, r.Host, u, d.decide)
}

// has reports whether the device offers a way of updating.
func (d *Device) has(way Push) bool {
	d.lock()
	defer d.mu.Unlock()
	return d.offers(way)
}

// decide makes the plan of an upload that is not for one supply.
func (d *Device) decide(u upload) (plan, *answer) {
	if d.blueprint.product.shelf == nil {
		return d.planCompute(u)
	}
	p := d.planShelf(u, -1)
	if p.supply && d.knobs.RejectAllSupplies {
		a := refuseAllSupplies()
		return plan{}, &a
	}
	return p, nil
}

// receivePush takes an octet-stream push for the whole device.
func (d *Device) receivePush(r *http.Request) answer {
	if !d.has(PushOctet) {
		return notFound(r.URL.Path)
	}
	return d.push(r, d.decide)
}

// push reads an octet-stream body and begins what decide makes of it.
func (d *Device) push(r *http.Request, decide func(upload) (plan, *answer)) answer {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/octet-stream" {
		return unsupported(r, "The image has to be application/octet-stream.")
	}
	d.prepare(r)
	note := &reqlog.Upload{PowerDevice: r.Header.Get("LiteonPowerDeviceId")}
	reqlog.FromContext(r.Context()).Upload = note
	in := intake{note: note}
	if err := in.read(r.Context(), r.Body); err != nil {
		return answer{abort: true}
	}
	u := in.upload()
	d.aimPush(&u)
	note.Targets = u.targets
	return d.begin(note, r.Host, u, decide)
}

// begin starts the update of a complete upload, or refuses it.
func (d *Device) begin(note *reqlog.Upload, host string, u upload, decide func(upload) (plan, *answer)) answer {
	now := d.lock()
	defer d.mu.Unlock()
	switch {
	case d.knobs.ServiceDisabled:
		return refusal(http.StatusServiceUnavailable, "ServiceDisabled", "The update service is disabled.")
	case note.FileBytes == 0:
		return refusal(http.StatusBadRequest, "InvalidUpload", "The image is empty.")
	}
	p, refused := decide(u)
	if refused != nil {
		return *refused
	}
	if d.updating(p.hgx) {
		return refusal(http.StatusServiceUnavailable, updateRegistry+"UpdateInProgress", "Another update is in progress.").
			with("Retry-After", "30")
	}
	if !u.force && d.installedAlready(p) {
		switch d.knobs.SameVersion {
		case SameVersionNoTask:
			return answer{status: http.StatusAccepted}
		case SameVersionConflict:
			return refusal(http.StatusConflict, "ResourceAlreadyExists", "The component has this image already.")
		case SameVersionFlashes, SameVersionSkips:
			// These have a task.
		}
	}
	d.spareSupplies(&p)
	t := d.startTask(now, p)
	if p.unlisted {
		return jsonAnswer(http.StatusOK, object{"Result": "success"})
	}
	note.Task = t.id
	return d.uploadAnswer(t, now, host)
}

// uploadAnswer tells the client of the task in the shape the device is set to.
func (d *Device) uploadAnswer(t *task, now time.Time, host string) answer {
	uri := tasksURI + "/" + t.id
	a := answer{status: http.StatusAccepted}
	switch d.knobs.UploadAnswer {
	case AnswerLocation:
	case AnswerURL:
		uri = "https://" + host + uri
	case AnswerRelative:
		// Push URIs are below UpdateService.
		uri = ".." + strings.TrimPrefix(uri, rootURI)
	case AnswerMonitor:
		uri = monitorsURI + "/" + t.id
	case AnswerMonitorBody:
		return jsonAnswer(http.StatusAccepted, object{"TaskMonitor": monitorsURI + "/" + t.id})
	case AnswerJobID:
		return jsonAnswer(http.StatusAccepted, object{"@Message.ExtendedInfo": []any{extended(
			"IDRAC.2.8.SYS429", "A job for the update was made.", "OK", "None.", t.id)}})
	case AnswerBody:
		return jsonAnswer(http.StatusAccepted, t.document(now))
	case AnswerLink:
		a = jsonAnswer(http.StatusAccepted, link(uri))
	case AnswerMessageArgs:
		return jsonAnswer(http.StatusAccepted, object{"Messages": []any{extended(
			taskRegistry+"TaskStarted", "The task has started.", "OK", "None.", uri)}})
	case AnswerAcceptedEmpty:
		return a
	case AnswerOKEmpty:
		d.removeTask(t.id)
		return answer{status: http.StatusOK}
	default:
		a = jsonAnswer(http.StatusAccepted, t.document(now))
	}
	return a.with("Location", uri)
}

func unsupported(r *http.Request, text string) answer {
	// The body is taken first, so that the client gets to read the refusal.
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return answer{abort: true}
	}
	return refusal(http.StatusUnsupportedMediaType, "HeaderInvalid", text, "Content-Type")
}

// badBody tells a broken connection from a body that is wrong in itself.
func badBody(r *http.Request) answer {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return answer{abort: true}
	}
	return refusal(http.StatusBadRequest, "MissingOrMalformedPart", "The multipart body cannot be read.")
}

// intake collects an upload without keeping the file.
type intake struct {
	note *reqlog.Upload
	file *fileSink
	name string
	// malformed says that a JSON part was none; it is kept out of the note, which has to stay JSON.
	malformed bool
}

func (in *intake) take(ctx context.Context, part *multipart.Part) error {
	switch part.FormName() {
	case "UpdateFile":
		in.name = part.FileName()
		in.note.File = in.name
		return in.read(ctx, part)
	case "UpdateParameters", "OemParameters":
		text, err := io.ReadAll(io.LimitReader(part, maxJSONBody))
		if err != nil {
			return err
		}
		switch {
		case !json.Valid(text):
			in.malformed = true
		case part.FormName() == "OemParameters":
			in.note.OEM = text
		default:
			in.note.Parameters = text
		}
	}
	return nil
}

// read streams the file and notes what arrived, also when it broke off.
func (in *intake) read(ctx context.Context, body io.Reader) error {
	in.file = &fileSink{hash: sha256.New()}
	began := time.Now()
	_, err := io.Copy(in.file, body)
	in.note.DurationMS = float64(time.Since(began)) / float64(time.Millisecond)
	in.note.FileBytes = in.file.size
	reqlog.FromContext(ctx).SHA256 = in.file.sum()
	return err
}

func (in *intake) upload() upload {
	return upload{file: firmwarepackage.Identify(in.file.prefix, in.name), sum: in.file.sum(), given: in.name}
}

// fileSink counts and hashes a file and keeps its first bytes.
type fileSink struct {
	hash   hash.Hash
	size   int64
	prefix []byte
}

func (s *fileSink) Write(b []byte) (int, error) {
	if room := firmwarepackage.PrefixSize - len(s.prefix); room > 0 {
		s.prefix = append(s.prefix, b[:min(room, len(b))]...)
	}
	s.hash.Write(b)
	s.size += int64(len(b))
	return len(b), nil
}

func (s *fileSink) sum() string { return hex.EncodeToString(s.hash.Sum(nil)) }

// prepare makes the body's errors stay, and slows it down when the device is set to.
func (d *Device) prepare(r *http.Request) {
	r.Body = &stickyBody{ReadCloser: r.Body}
	if rate := d.Knobs().UploadBytesPerSecond; rate > 0 {
		r.Body = &slowBody{ReadCloser: r.Body, ctx: r.Context(), rate: rate}
	}
}

// stickyBody repeats its first error, where net/http gives io.EOF after a broken connection was told once.
type stickyBody struct {
	io.ReadCloser
	err error
}

func (s *stickyBody) Read(b []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.ReadCloser.Read(b)
	s.err = err
	return n, err
}

// slowBody gives bytes at a rate.
type slowBody struct {
	io.ReadCloser
	ctx  context.Context
	rate int64
}

func (s *slowBody) Read(b []byte) (int, error) {
	// A tenth of a second's bytes at a time keeps the flow even.
	n, err := s.ReadCloser.Read(b[:min(int64(len(b)), cmp.Or(s.rate/10, 1))])
	select {
	case <-time.After(time.Duration(n) * time.Second / time.Duration(s.rate)):
		return n, err
	case <-s.ctx.Done():
		return n, s.ctx.Err()
	}
}
