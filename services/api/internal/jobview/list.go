// SPDX-License-Identifier: Apache-2.0

package jobview

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"slices"

	"github.com/rackbus/rackbus/pkg/job"
)

// position is where a page ended: the creation time in nanoseconds and the id.
type position struct {
	created int64
	id      job.ID
}

func positionOf(r *job.Record) position { return position{r.CreatedAt.UnixNano(), r.ID} }

// compare orders newest first, and equally old ones by descending id.
func compare(a, b position) int {
	switch {
	case a.created != b.created && a.created > b.created:
		return -1
	case a.created != b.created:
		return 1
	}
	return bytes.Compare(b.id[:], a.id[:])
}

const positionLen = 1 + 8 + 16

// pageVersion begins a page token.
const pageVersion = 1

func (p position) token() string {
	b := make([]byte, 0, positionLen)
	b = append(b, pageVersion)
	b = binary.BigEndian.AppendUint64(b, uint64(p.created))
	b = append(b, p.id[:]...)
	return base64.RawURLEncoding.EncodeToString(b)
}

func parsePosition(token string) (position, error) {
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(b) != positionLen || b[0] != pageVersion {
		return position{}, ErrBadToken
	}
	p := position{created: int64(binary.BigEndian.Uint64(b[1:]))}
	copy(p.id[:], b[9:])
	return p, nil
}

// List returns a page of the selected jobs, newest first, and the token of the
// next page, empty when there is none. Jobs that appear between two pages are not
// in the later one.
func (v *View) List(f Filter, size int, token string) (jobs []job.Record, next string, err error) {
	var after position
	if token != "" {
		if after, err = parsePosition(token); err != nil {
			return nil, "", err
		}
	}
	v.mu.Lock()
	if !v.current {
		v.mu.Unlock()
		return nil, "", ErrNotReady
	}
	var found []*job.Record
	for _, it := range v.items {
		if f.Match(&it.record) && (token == "" || compare(after, positionOf(&it.record)) < 0) {
			found = append(found, &it.record)
		}
	}
	v.mu.Unlock()
	slices.SortFunc(found, func(a, b *job.Record) int { return compare(positionOf(a), positionOf(b)) })
	if len(found) > size {
		found = found[:size]
		next = positionOf(found[size-1]).token()
	}
	jobs = make([]job.Record, len(found))
	for i, r := range found {
		jobs[i] = *r
	}
	return jobs, next, nil
}

// Get returns one job of the picture.
func (v *View) Get(id job.ID) (job.Record, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	it, ok := v.items[id]
	if !ok {
		return job.Record{}, false
	}
	return it.record, true
}
