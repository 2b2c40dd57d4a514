// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// download makes one try to get the rest of a file over HTTP.
func (j *fetch) download(ctx context.Context) (Result, error) {
	p, err := j.reopen(ctx, note{Location: j.r.Location.String(), Want: hex.EncodeToString(j.r.Want)})
	if err != nil {
		return Result{}, err
	}
	ctx, stall, end := watchStall(ctx, j.f.o.Timing.Stall)
	defer end()
	res, err := j.f.web.do(ctx, http.MethodGet, j.r.Location, j.r.Token, rangeOf(p))
	if err != nil {
		return Result{}, errors.Join(stalled(ctx, err), p.close())
	}
	defer res.Body.Close()
	total, done, err := j.answer(&p, res)
	if err != nil {
		return Result{}, errors.Join(err, p.close())
	}
	if done {
		return j.complete(p, total)
	}
	stall.alive()
	_, err = copyContext(ctx, p, res.Body, func(n int) error {
		stall.alive()
		return j.came(p, n, total)
	})
	var full *writeError
	switch {
	case err == nil:
		return j.complete(p, total)
	case errors.Is(err, ErrLimit):
		return Result{}, errors.Join(err, p.discard())
	case errors.As(err, &full):
		return Result{}, errors.Join(err, p.close())
	}
	err = stalled(ctx, transient(fmt.Errorf("the connection broke after %d of %s bytes: %w", p.size, announced(total), err)))
	return Result{}, errors.Join(err, p.close())
}

func announced(total int64) string {
	if total <= 0 {
		return "unannounced"
	}
	return strconv.FormatInt(total, 10)
}

// rangeOf asks for what is missing, on the condition that the file is still the
// same.
func rangeOf(p *partial) http.Header {
	h := http.Header{"Accept-Encoding": {"identity"}}
	if p.size == 0 {
		return h
	}
	h.Set("Range", fmt.Sprintf("bytes=%d-", p.size))
	switch {
	case p.note.ETag != "":
		h.Set("If-Range", p.note.ETag)
	case p.note.Modified != "":
		h.Set("If-Range", p.note.Modified)
	}
	return h
}

// answer prepares the partial file for the body of an answer. A whole file in
// place of the rest begins a new one. done says that nothing was missing.
func (j *fetch) answer(p **partial, res *http.Response) (total int64, done bool, err error) {
	switch res.StatusCode {
	case http.StatusPartialContent:
		from, size, err := contentRange(res)
		if size == 0 { // not told
			size = max((*p).note.Total, 0)
		}
		if err != nil || from != (*p).size || (*p).size == 0 || !(*p).note.agrees(size) {
			return 0, false, j.startOver(p, fmt.Errorf("%w: another range than was asked for", ErrStatus))
		}
		if (*p).note.contradicts(res) {
			return 0, false, j.startOver(p, fmt.Errorf("%w: the file has changed, and the rest is that of another one", ErrStatus))
		}
		j.resumed = true
		return size, false, j.checkSize(size)
	case http.StatusRequestedRangeNotSatisfiable:
		if _, size, err := contentRange(res); err == nil && size == (*p).size && size > 0 && (*p).note.agrees(size) {
			j.resumed = true
			return size, true, nil
		}
		return 0, false, j.startOver(p, fmt.Errorf("%w: %s bytes were announced and the file has %s", ErrStatus,
			announced((*p).note.Total), res.Header.Get("Content-Range")))
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return 0, false, refusal(res, j.f.o.Timing.RetryAfterMax)
	}
	if err := j.checkSize(res.ContentLength); err != nil {
		return 0, false, err
	}
	if (*p).size > 0 {
		if err := j.startOver(p, nil); err != nil {
			return 0, false, err
		}
	}
	j.resumed = false
	return res.ContentLength, false, (*p).describe(note{
		Location: j.r.Location.String(), ETag: strong(res.Header.Get("ETag")),
		Modified: res.Header.Get("Last-Modified"), Total: res.ContentLength, Want: hex.EncodeToString(j.r.Want),
	})
}

// startOver replaces a partial file by an empty one, and returns cause as
// something to be tried again.
func (j *fetch) startOver(p **partial, cause error) error {
	if err := (*p).discard(); err != nil {
		return fmt.Errorf("remove partial file: %w", err)
	}
	fresh, err := j.create()
	if err != nil {
		return err
	}
	*p = fresh
	if cause == nil {
		return nil
	}
	return transient(cause)
}

// strong returns an entity tag if it promises the very same bytes.
func strong(etag string) string {
	if strings.HasPrefix(etag, `"`) {
		return etag
	}
	return ""
}

// contentRange reads where an answer's bytes lie, and the size of the whole, 0
// when it is not told.
func contentRange(res *http.Response) (from, size int64, err error) {
	v, ok := strings.CutPrefix(res.Header.Get("Content-Range"), "bytes ")
	span, all, found := strings.Cut(v, "/")
	if !ok || !found {
		return 0, 0, fmt.Errorf("%w: no content range", ErrStatus)
	}
	if all != "*" {
		if size, err = strconv.ParseInt(all, 10, 64); err != nil || size < 0 {
			return 0, 0, fmt.Errorf("%w: content range", ErrStatus)
		}
	}
	if span == "*" {
		return 0, size, nil
	}
	first, _, _ := strings.Cut(span, "-")
	if from, err = strconv.ParseInt(first, 10, 64); err != nil || from < 0 {
		return 0, 0, fmt.Errorf("%w: content range", ErrStatus)
	}
	return from, size, nil
}
