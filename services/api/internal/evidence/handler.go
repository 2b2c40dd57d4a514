// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/diagnostics"
	"github.com/rackbus/rackbus/pkg/job"
)

// maxManifest is the most a manifest may have, in bytes.
const maxManifest = 4 << 20

// Store has the bundles; a *bus.Conn is one.
type Store interface {
	Evidence(ctx context.Context, name bus.EvidenceName) (bus.Evidence, error)
	ReadEvidence(ctx context.Context, e bus.Evidence, w io.Writer) error
}

// ErrNone says that a job has no bundle, or one that is not whole.
var ErrNone = errors.New("there is no evidence")

// Bundle is a bundle that is whole.
type Bundle struct {
	diagnostics.ManifestBundle
	stored bus.Evidence
}

// Find returns the bundle of a job. The manifest is stored last, so that a bundle
// without one, or with one of another bundle, is not whole: the error wraps ErrNone.
func Find(ctx context.Context, store Store, id job.ID) (Bundle, error) {
	m, err := manifest(ctx, store, id)
	if errors.Is(err, bus.ErrNotFound) {
		return Bundle{}, ErrNone
	}
	if err != nil {
		return Bundle{}, err
	}
	b := Bundle{ManifestBundle: *m.Bundle}
	b.stored, err = store.Evidence(ctx, bus.EvidenceBundle(id))
	switch {
	case errors.Is(err, bus.ErrNotFound):
		return Bundle{}, ErrNone
	case err != nil:
		return Bundle{}, err
	case hex.EncodeToString(b.stored.Digest[:]) != b.SHA256:
		return Bundle{}, fmt.Errorf("%w yet: it is being written anew", ErrNone)
	}
	return b, nil
}

func manifest(ctx context.Context, store Store, id job.ID) (diagnostics.Manifest, error) {
	e, err := store.Evidence(ctx, bus.EvidenceManifest(id))
	if err != nil {
		return diagnostics.Manifest{}, err
	}
	if e.Size > maxManifest {
		return diagnostics.Manifest{}, fmt.Errorf("manifest of job %s has %d bytes", id, e.Size)
	}
	var raw bytes.Buffer
	if err := store.ReadEvidence(ctx, e, &raw); err != nil {
		return diagnostics.Manifest{}, err
	}
	return diagnostics.ParseManifest(raw.Bytes())
}

// Handler serves links.
type Handler struct {
	store   Store
	signer  *Signer
	log     *slog.Logger
	answers *prometheus.CounterVec
}

// NewHandler returns a handler for every path below Prefix.
func NewHandler(store Store, signer *Signer, reg prometheus.Registerer, log *slog.Logger) *Handler {
	h := &Handler{store: store, signer: signer, log: log, answers: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rackbus_diagnostics_downloads_total",
		Help: "Answers to requests for evidence, by HTTP status; aborted ones count as 0.",
	}, []string{"code"})}
	reg.MustRegister(h.answers)
	return h
}

// ServeHTTP verifies the link and streams the bundle. A bundle that turns out not to
// be what it should be ends as a broken connection, never as a whole file.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		h.refuse(w, http.StatusMethodNotAllowed, "only GET and HEAD are possible")
		return
	}
	link, err := h.signer.Verify(r.URL, time.Now())
	if err != nil {
		h.refuse(w, statusOf(err), err.Error())
		return
	}
	log := h.log.With("job_id", link.Job.String())
	bundle, err := Find(r.Context(), h.store, link.Job)
	switch {
	case errors.Is(err, ErrNone), err == nil && bundle.Filename != link.Filename:
		h.refuse(w, http.StatusNotFound, ErrNone.Error())
		return
	case err != nil:
		log.Warn("evidence not read", "err", err)
		h.refuse(w, http.StatusServiceUnavailable, "the evidence cannot be read now; try again")
		return
	}
	header.Set("Content-Type", bundle.ContentType)
	header.Set("Content-Length", strconv.FormatInt(bundle.Size, 10))
	header.Set("Content-Disposition", `attachment; filename="`+bundle.Filename+`"`)
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		h.count(http.StatusOK)
		return
	}
	out := &held{w: w}
	if err = h.store.ReadEvidence(r.Context(), bundle.stored, out); err == nil {
		err = out.release()
	}
	if err != nil {
		log.Warn("download of evidence aborted", "err", err)
		h.count(0)
		panic(http.ErrAbortHandler)
	}
	h.count(http.StatusOK)
	log.Info("evidence downloaded", "bytes", bundle.Size, "peer", r.RemoteAddr)
}

func statusOf(err error) int {
	switch {
	case errors.Is(err, ErrExpired):
		return http.StatusGone
	case errors.Is(err, ErrForged):
		return http.StatusForbidden
	default:
		return http.StatusBadRequest
	}
}

func (h *Handler) refuse(w http.ResponseWriter, status int, text string) {
	h.count(status)
	http.Error(w, text, status)
}

func (h *Handler) count(status int) { h.answers.WithLabelValues(strconv.Itoa(status)).Inc() }

// held keeps the last chunk back until the digest of all is verified: a client that
// got every byte would take the file for whole.
type held struct {
	w    io.Writer
	last []byte
}

func (h *held) Write(p []byte) (int, error) {
	if err := h.release(); err != nil {
		return 0, err
	}
	h.last = append(h.last[:0], p...)
	return len(p), nil
}

func (h *held) release() error {
	_, err := h.w.Write(h.last)
	h.last = h.last[:0]
	return err
}
