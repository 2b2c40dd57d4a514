// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/bus"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// withContent stores contents, makes the records that refer to them, and makes
// sure that no removal got in between.
func (s *Bus) withContent(ctx context.Context, contents [][]byte, commit func() error) error {
	for _, c := range contents {
		if len(c) == 0 {
			continue
		}
		if err := s.conn.PutBlob(ctx, sha256.Sum256(c), bytes.NewReader(c)); err != nil {
			return fmt.Errorf("store content: %w", err)
		}
	}
	if err := commit(); err != nil {
		return err
	}
	for _, c := range contents {
		if len(c) == 0 {
			continue
		}
		// It keeps what is there.
		if err := s.conn.PutBlob(ctx, sha256.Sum256(c), bytes.NewReader(c)); err != nil {
			return fmt.Errorf("keep content: %w", err)
		}
	}
	return nil
}

func (s *Bus) content(ctx context.Context, digest []byte) ([]byte, error) {
	if len(digest) != sha256.Size {
		return nil, fmt.Errorf("%w: a digest of %d bytes", ErrInvalid, len(digest))
	}
	var b bytes.Buffer
	if err := s.conn.ReadBlob(ctx, bus.Digest(digest), &b); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// freeDigests frees content that was just let go, unless something else refers to
// it. What fails here is left to Collect.
func (s *Bus) freeDigests(ctx context.Context, digests ...[]byte) {
	wanted := map[[sha256.Size]byte]bool{}
	references(wanted, digests...)
	var blobs []bus.Blob
	for d := range wanted {
		b, err := s.conn.Blob(ctx, d)
		if errors.Is(err, bus.ErrNotFound) {
			continue
		}
		if err != nil {
			s.log.Warn("content not freed", "err", err)
			return
		}
		blobs = append(blobs, b)
	}
	if _, err := s.drop(ctx, blobs); err != nil {
		s.log.Warn("content not freed", "err", err)
	}
}

// drop removes those of the blobs to which nothing refers. The references are
// read after the blobs: whoever makes one since keeps its blob afterwards, and
// the removal then meets another revision.
func (s *Bus) drop(ctx context.Context, blobs []bus.Blob) (int, error) {
	if len(blobs) == 0 {
		return 0, nil
	}
	used, err := s.used(ctx)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, b := range blobs {
		if used[b.Digest] {
			continue
		}
		err := s.conn.DropBlob(ctx, b)
		if err != nil && !errors.Is(err, bus.ErrConflict) {
			return n, err
		}
		if err == nil {
			n++
		}
	}
	return n, nil
}

// used returns every digest that a record refers to.
func (s *Bus) used(ctx context.Context) (map[[sha256.Size]byte]bool, error) {
	used := map[[sha256.Size]byte]bool{}
	for _, kind := range []struct {
		r       bus.CatalogRange
		v       proto.Message
		digests func(proto.Message) [][]byte
	}{
		{bus.CatalogObjects, &Object{}, func(v proto.Message) [][]byte {
			o, _ := v.(*Object)
			return [][]byte{o.GetConfigSha256(), o.GetLookupSha256()}
		}},
		{bus.CatalogArtifacts, &Artifact{}, func(v proto.Message) [][]byte {
			a, _ := v.(*Artifact)
			return [][]byte{a.GetSha256()}
		}},
		{bus.CatalogPlans, &rackbusv1.FirmwarePlanRecord{}, func(v proto.Message) [][]byte {
			p, _ := v.(*rackbusv1.FirmwarePlanRecord)
			return [][]byte{p.GetPlanSha256()}
		}},
	} {
		err := s.conn.CatalogEntries(ctx, kind.r, func(e bus.CatalogEntry) error {
			proto.Reset(kind.v)
			if err := e.Decode(kind.v); err != nil {
				return err
			}
			references(used, kind.digests(kind.v)...)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return used, nil
}

// Collect implements Store.
func (s *Bus) Collect(ctx context.Context, idle time.Duration) (int, error) {
	blobs, err := s.conn.Blobs(ctx)
	if err != nil {
		return 0, err
	}
	n, err := s.drop(ctx, blobs)
	if err != nil {
		return n, err
	}
	swept, err := s.conn.SweepBlobs(ctx, idle)
	return n + swept, err
}
