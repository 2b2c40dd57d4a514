// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// Sizes of the object store.
const (
	// blobChunk is the size of one message. The broker syncs each to disk, so the
	// 128 KiB of the NATS client would cost four times as many.
	blobChunk = 512 << 10
	// blobWindow is how many chunks are under way at a time, in each direction.
	blobWindow = 8
	// blobBucket is the object store's name.
	blobBucket = "rb_fw"
)

// blobRetries and blobRetryPause are how long a replica may lag behind the leader
// that knows a blob.
const (
	blobRetries    = 8
	blobRetryPause = 250 * time.Millisecond
)

const hdrRollup = "Nats-Rollup"

// codeSequenceNotFound is the broker's answer to the removal of a message that a
// later one of its subject has replaced.
const codeSequenceNotFound = 10043

// Digest is a SHA-256, by which blobs are stored.
type Digest [sha256.Size]byte

// String returns the digest in hexadecimal.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

func (d Digest) name() string { return "sha256/" + d.String() }

func (d Digest) metaSubject() string {
	return subjBlobMeta + base64.URLEncoding.EncodeToString([]byte(d.name()))
}

// Blob is a stored sequence of bytes.
type Blob struct {
	Digest Digest
	Size   int64
	// Revision changes with every PutBlob and KeepBlob of the digest.
	Revision Revision

	nuid   string
	chunks int
}

// blobMeta is the description of an object as the NATS object store has it.
type blobMeta struct {
	Name    string `json:"name"`
	Options struct {
		ChunkSize int `json:"max_chunk_size,omitempty"`
	} `json:"options"`
	Bucket  string `json:"bucket"`
	NUID    string `json:"nuid"`
	Size    int64  `json:"size"`
	ModTime string `json:"mtime"`
	Chunks  int    `json:"chunks"`
	Digest  string `json:"digest,omitempty"`
	Deleted bool   `json:"deleted,omitempty"`
}

// ErrDigest says that bytes do not have the digest they should have.
var ErrDigest = errors.New("bus: the content does not have its digest")

// Blob looks a blob up at the leader; ErrNotFound when there is none.
func (c *Conn) Blob(ctx context.Context, d Digest) (Blob, error) {
	s, err := c.leaderGet(ctx, streamBlobs, d.metaSubject())
	if err != nil {
		return Blob{}, err
	}
	return blobOf(s)
}

func blobOf(s stored) (Blob, error) {
	var m blobMeta
	if err := json.Unmarshal(s.data, &m); err != nil {
		return Blob{}, fmt.Errorf("decode %s: %w", s.subject, err)
	}
	b := Blob{Size: m.Size, Revision: s.rev, nuid: m.NUID, chunks: m.Chunks}
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
	up := &chunkUpload{c: c, blob: Blob{Digest: d, nuid: nuid.Next()}}
	b := &up.blob
	err := up.send(ctx, r)
	if err == nil {
		err = c.putMeta(ctx, *b, Absent)
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
	m := blobMeta{
		Name: b.Digest.name(), Bucket: blobBucket, NUID: b.nuid, Size: b.Size, Chunks: b.chunks,
		ModTime: time.Time{}.Format(time.RFC3339),
		Digest:  "SHA-256=" + base64.URLEncoding.EncodeToString(b.Digest[:]),
	}
	m.Options.ChunkSize = blobChunk
	data, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode blob %s: %w", b.Digest, err)
	}
	msg := newMessage(b.Digest.metaSubject(), data)
	msg.Header.Set(hdrRollup, "sub")
	expecting(expect)(msg)
	_, err = c.publish(ctx, msg)
	return err
}

// chunkUpload sends the chunks of one blob, a few of them at a time.
type chunkUpload struct {
	c     *Conn
	blob  Blob
	under []sentChunk
	last  uint64
}

type sentChunk struct {
	future jetstream.PubAckFuture
	buf    []byte
}

// send stores r in order and counts it into the blob.
func (u *chunkUpload) send(ctx context.Context, r io.Reader) error {
	sum := sha256.New()
	for end := false; !end; {
		buf, err := u.buffer(ctx)
		if err != nil {
			return err
		}
		n, err := io.ReadFull(r, buf)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			end = true
		case err != nil:
			return fmt.Errorf("read what is to be stored: %w", err)
		}
		if n == 0 {
			break
		}
		sum.Write(buf[:n])
		f, err := u.c.js.PublishMsgAsync(newMessage(subjBlobChunk+u.blob.nuid, buf[:n]), jetstream.WithRetryAttempts(0))
		if err != nil {
			return classify("store blob "+u.blob.Digest.String(), err, false)
		}
		u.under = append(u.under, sentChunk{f, buf})
		u.blob.Size += int64(n)
		u.blob.chunks++
	}
	for len(u.under) > 0 {
		if _, err := u.await(ctx); err != nil {
			return err
		}
	}
	if !bytes.Equal(sum.Sum(nil), u.blob.Digest[:]) {
		return fmt.Errorf("store blob %s: %w", u.blob.Digest, ErrDigest)
	}
	return nil
}

// buffer returns a chunk's buffer, which is free once the broker has its content.
func (u *chunkUpload) buffer(ctx context.Context) ([]byte, error) {
	if len(u.under) < blobWindow {
		return make([]byte, blobChunk), nil
	}
	return u.await(ctx)
}

// await waits until the oldest chunk under way is stored.
func (u *chunkUpload) await(ctx context.Context) ([]byte, error) {
	first := u.under[0]
	u.under = u.under[1:]
	ctx, cancel := u.c.requestContext(ctx)
	defer cancel()
	select {
	case ack := <-first.future.Ok():
		if ack.Sequence <= u.last {
			return nil, fmt.Errorf("store blob %s: %w: chunks out of order", u.blob.Digest, ErrUnavailable)
		}
		u.last = ack.Sequence
		return first.buf[:blobChunk], nil
	case err := <-first.future.Err():
		return nil, classify("store blob "+u.blob.Digest.String(), err, false)
	case <-ctx.Done():
		return nil, classify("store blob "+u.blob.Digest.String(), ctx.Err(), false)
	}
}

// settle waits for what is still under way, so that nothing is stored behind the
// removal.
func (u *chunkUpload) settle(ctx context.Context) {
	for len(u.under) > 0 && ctx.Err() == nil {
		if _, err := u.await(ctx); err != nil {
			u.c.log.Debug("chunk of a given up blob not stored", "err", err)
		}
	}
}

// ReadBlob writes the bytes of a blob to w and verifies them. It wraps
// ErrNotFound when there is no such blob, or when it was removed meanwhile, and
// ErrDigest when what is stored is not what it should be.
func (c *Conn) ReadBlob(ctx context.Context, d Digest, w io.Writer) error {
	b, err := c.Blob(ctx, d)
	if err != nil {
		return err
	}
	sum := sha256.New()
	out := io.MultiWriter(w, sum)
	var at uint64
	tries := 0
	for got := 0; got < b.chunks; {
		n, last, err := c.readChunks(ctx, b.nuid, at+1, out)
		if err != nil {
			return fmt.Errorf("read blob %s: %w", d, err)
		}
		got += n
		if n > 0 {
			at, tries = last, 0
			continue
		}
		if tries++; c.opts.Replicas == 1 || tries > blobRetries {
			return fmt.Errorf("read blob %s: %w: %d of %d chunks are there", d, ErrNotFound, got, b.chunks)
		}
		if err := pause(ctx, blobRetryPause); err != nil {
			return err
		}
	}
	if !bytes.Equal(sum.Sum(nil), d[:]) {
		return fmt.Errorf("read blob %s: %w", d, ErrDigest)
	}
	return nil
}

// readChunks writes the next few chunks to w. It reads without a consumer, which
// an agent would need further rights for.
func (c *Conn) readChunks(ctx context.Context, id string, from uint64, w io.Writer) (n int, last uint64, err error) {
	req, err := json.Marshal(map[string]any{"seq": from, "next_by_subj": subjBlobChunk + id, "batch": blobWindow})
	if err != nil {
		return 0, 0, fmt.Errorf("encode request: %w", err)
	}
	inbox := c.nc.NewRespInbox()
	sub, err := c.nc.SubscribeSync(inbox)
	if err != nil {
		return 0, 0, classify("read chunks", err, false)
	}
	defer func() {
		if err := sub.Unsubscribe(); err != nil {
			c.log.Debug("inbox of chunks not released", "err", err)
		}
	}()
	if err := c.nc.PublishRequest("$JS.API.DIRECT.GET."+streamBlobs, inbox, req); err != nil {
		return 0, 0, classify("read chunks", err, false)
	}
	for {
		m, err := c.nextChunk(ctx, sub)
		if err != nil {
			return n, last, classify("read chunks", err, false)
		}
		switch status := m.Header.Get("Status"); status {
		case "":
			if last, err = strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64); err != nil {
				return n, last, fmt.Errorf("%w: chunk without sequence: %w", ErrUnavailable, err)
			}
			if _, err := w.Write(m.Data); err != nil {
				return n, last, fmt.Errorf("write chunk: %w", err)
			}
			n++
		case "204", "404":
			return n, last, nil
		default:
			return n, last, fmt.Errorf("%w: status %s %s", ErrUnavailable, status, m.Header.Get("Description"))
		}
	}
}

// nextChunk waits for one answer no longer than for any other.
func (c *Conn) nextChunk(ctx context.Context, sub *nats.Subscription) (*nats.Msg, error) {
	ctx, cancel := c.requestContext(ctx)
	defer cancel()
	return sub.NextMsgWithContext(ctx)
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
