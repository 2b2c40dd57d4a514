// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// blobBucket is the object store's name.
const blobBucket = "rb_fw"

// blobs is the object store of firmware.
func blobs() bucket { return bucket{blobBucket, streamBlobs, subjBlobChunk, subjBlobMeta} }

// codeSequenceNotFound is the broker's answer to the removal of a message that a
// later one of its subject has replaced.
const codeSequenceNotFound = 10043

// Digest is a SHA-256, by which blobs are stored.
type Digest [sha256.Size]byte

// String returns the digest in hexadecimal.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

func (d Digest) name() string { return "sha256/" + d.String() }

func (d Digest) metaSubject() string { return blobs().metaSubject(d.name()) }

// Blob is a stored sequence of bytes.
type Blob struct {
	Digest Digest
	Size   int64
	// Revision changes with every PutBlob and KeepBlob of the digest.
	Revision Revision

	chunked
}

// Blob looks a blob up at the leader; ErrNotFound when there is none.
func (c *Conn) Blob(ctx context.Context, d Digest) (Blob, error) {
	s, err := c.leaderGet(ctx, streamBlobs, d.metaSubject())
	if err != nil {
		return Blob{}, err
	}
	return blobOf(s)
}

func blobOf(s stored) (Blob, error) {
	m, err := metaOf(s)
	if err != nil {
		return Blob{}, err
	}
	b := Blob{Size: m.Size, Revision: s.rev, chunked: chunked{m.NUID, m.Chunks}}
	sum, err := hex.DecodeString(strings.TrimPrefix(m.Name, "sha256/"))
	if err != nil || len(sum) != len(b.Digest) || m.Deleted {
		return Blob{}, fmt.Errorf("object %q: %w: not a blob", m.Name, ErrNotFound)
	}
	copy(b.Digest[:], sum)
	return b, nil
}

// PutBlob stores the bytes of r, unless they are stored already. It wraps
// ErrDigest when they do not have the digest; nothing is stored then. It needs
// a few MiB of memory whatever their size.
func (c *Conn) PutBlob(ctx context.Context, d Digest, r io.Reader) error {
	if kept, err := c.KeepBlob(ctx, d); err != nil || kept {
		return err
	}
	up := c.newUpload(blobs(), "blob "+d.String())
	err := up.send(ctx, r)
	if err == nil && up.digest() != d {
		err = fmt.Errorf("store blob %s: %w", d, ErrDigest)
	}
	b := Blob{Digest: d, Size: up.size, chunked: up.chunked}
	if err == nil {
		err = c.putMeta(ctx, b, Absent)
	}
	if err == nil {
		return nil
	}
	// The caller's context may be what ended it; what was sent must not stay.
	cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.timing.Request)
	defer cancel()
	up.settle(cctx)
	if errors.Is(err, ErrOutcomeUnknown) {
		if got, gerr := c.Blob(cctx, d); gerr != nil || got.nuid == b.nuid {
			return err // stored after all, or not to be known: SweepBlobs decides
		}
	}
	if perr := c.purge(cctx, streamBlobs, subjBlobChunk+b.nuid); perr != nil {
		c.log.Warn("chunks of a refused blob not removed", "err", perr)
	}
	if errors.Is(err, ErrConflict) {
		// Somebody else has stored the same bytes meanwhile.
		kept, kerr := c.KeepBlob(ctx, d)
		if kerr == nil && kept {
			return nil
		}
	}
	return err
}

// KeepBlob gives a blob a new revision, so that a removal that was decided
// before does not happen. It returns false when there is no such blob.
func (c *Conn) KeepBlob(ctx context.Context, d Digest) (bool, error) {
	for {
		b, err := c.Blob(ctx, d)
		if errors.Is(err, ErrNotFound) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if err = c.putMeta(ctx, b, b.Revision); !errors.Is(err, ErrConflict) {
			return err == nil, err
		}
	}
}

func (c *Conn) putMeta(ctx context.Context, b Blob, expect Revision) error {
	return c.putObject(ctx, blobs(), objectMeta{
		Name: b.Digest.name(), NUID: b.nuid, Size: b.Size, Chunks: b.chunks, ModTime: time.Time{}.Format(time.RFC3339),
	}, b.Digest, expecting(expect))
}

// ReadBlob writes the bytes of a blob to w and verifies them. It wraps
// ErrNotFound when there is no such blob, or when it was removed meanwhile, and
// ErrDigest when what is stored is not what it should be.
func (c *Conn) ReadBlob(ctx context.Context, d Digest, w io.Writer) error {
	b, err := c.Blob(ctx, d)
	if err != nil {
		return err
	}
	sum, err := c.readContent(ctx, blobs(), b.chunked, w)
	if err != nil {
		return fmt.Errorf("read blob %s: %w", d, err)
	}
	if sum != d {
		return fmt.Errorf("read blob %s: %w", d, ErrDigest)
	}
	return nil
}

// DropBlob removes a blob as it was read. ErrConflict says that somebody has put
// or kept it since, or has removed it.
func (c *Conn) DropBlob(ctx context.Context, b Blob) error {
	err := c.eraseMessage(ctx, streamBlobs, b.Revision)
	var refused *apiError
	if errors.Is(err, ErrNotFound) || errors.As(err, &refused) && refused.ErrCode == codeSequenceNotFound {
		return fmt.Errorf("drop blob %s: %w", b.Digest, ErrConflict)
	}
	if err != nil {
		return err
	}
	return c.purge(ctx, streamBlobs, subjBlobChunk+b.nuid)
}

// Blobs returns every stored blob.
func (c *Conn) Blobs(ctx context.Context) ([]Blob, error) {
	subjects, err := c.listSubjects(ctx, streamBlobs, subjBlobMeta+">")
	if err != nil {
		return nil, err
	}
	out := make([]Blob, 0, len(subjects))
	for _, subject := range subjects {
		s, err := c.leaderGet(ctx, streamBlobs, subject)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		b, err := blobOf(s)
		if errors.Is(err, ErrNotFound) {
			continue // put there by hand
		}
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}

// SweepBlobs removes what interrupted calls of PutBlob have left behind, when
// nothing was added to it for the given time. It returns how many there were.
func (c *Conn) SweepBlobs(ctx context.Context, idle time.Duration) (int, error) {
	chunks, err := c.listSubjects(ctx, streamBlobs, subjBlobChunk+">")
	if err != nil {
		return 0, err
	}
	// The age comes first: what is described after that is old enough to be seen.
	var old []string
	for _, subject := range chunks {
		at, err := c.storedAt(ctx, subject)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if time.Since(at) > idle {
			old = append(old, subject)
		}
	}
	if len(old) == 0 {
		return 0, nil
	}
	blobs, err := c.Blobs(ctx)
	if err != nil {
		return 0, err
	}
	used := make(map[string]bool, len(blobs))
	for _, b := range blobs {
		used[subjBlobChunk+b.nuid] = true
	}
	swept := 0
	for _, subject := range old {
		if used[subject] {
			continue
		}
		if err := c.purge(ctx, streamBlobs, subject); err != nil {
			return swept, err
		}
		swept++
	}
	return swept, nil
}

// storedAt is when the broker took the last message of a subject.
func (c *Conn) storedAt(ctx context.Context, subject string) (time.Time, error) {
	s, err := c.directGet(ctx, streamBlobs, subject)
	if err != nil {
		return time.Time{}, err
	}
	at, err := time.Parse(time.RFC3339Nano, s.header.Get("Nats-Time-Stamp"))
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: message without time: %w", ErrUnavailable, err)
	}
	return at, nil
}
