// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// Sizes of object stores.
const (
	// blobChunk is the size of one message. The broker syncs each to disk, so the
	// 128 KiB of the NATS client would cost four times as many.
	blobChunk = 512 << 10
	// blobWindow is how many chunks are under way at a time, in each direction.
	blobWindow = 8
)

// blobRetries and blobRetryPause are how long a replica may lag behind the leader
// that knows an object.
const (
	blobRetries    = 8
	blobRetryPause = 250 * time.Millisecond
)

const hdrRollup = "Nats-Rollup"

// ErrDigest says that bytes do not have the digest they should have.
var ErrDigest = errors.New("bus: the content does not have its digest")

// bucket is one object store. Its layout is that of NATS object stores.
type bucket struct {
	name   string
	stream string
	// chunks and metas begin the subjects of contents and of descriptions.
	chunks string
	metas  string
}

func (b bucket) metaSubject(name string) string {
	return b.metas + base64.URLEncoding.EncodeToString([]byte(name))
}

func (b bucket) chunkSubject(nuid string) string { return b.chunks + nuid }

// chunked is where the content of an object lies.
type chunked struct {
	nuid   string
	chunks int
}

// objectMeta is the description of an object as the NATS object store has it.
type objectMeta struct {
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

func metaOf(s stored) (objectMeta, error) {
	var m objectMeta
	if err := json.Unmarshal(s.data, &m); err != nil {
		return objectMeta{}, fmt.Errorf("decode %s: %w", s.subject, err)
	}
	return m, nil
}

// putObject describes an object whose content is stored.
func (c *Conn) putObject(ctx context.Context, in bucket, m objectMeta, d Digest, with ...messageOption) error {
	m.Bucket, m.Digest = in.name, "SHA-256="+base64.URLEncoding.EncodeToString(d[:])
	m.Options.ChunkSize = blobChunk
	data, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode object %s: %w", m.Name, err)
	}
	msg := newMessage(in.metaSubject(m.Name), data)
	msg.Header.Set(hdrRollup, "sub")
	for _, w := range with {
		w(msg)
	}
	_, err = c.publish(ctx, msg)
	return err
}

// chunkUpload sends the chunks of one object, a few of them at a time.
type chunkUpload struct {
	chunked
	c    *Conn
	in   bucket
	what string
	size int64
	sum  hash.Hash

	under []sentChunk
	last  uint64
}

func (c *Conn) newUpload(in bucket, what string) *chunkUpload {
	return &chunkUpload{c: c, in: in, what: what, sum: sha256.New(), chunked: chunked{nuid: nuid.Next()}}
}

// digest is that of everything sent.
func (u *chunkUpload) digest() Digest { return Digest(u.sum.Sum(nil)) }

type sentChunk struct {
	future jetstream.PubAckFuture
	buf    []byte
}

// send stores r in order and counts it.
func (u *chunkUpload) send(ctx context.Context, r io.Reader) error {
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
		u.sum.Write(buf[:n])
		f, err := u.c.js.PublishMsgAsync(newMessage(u.in.chunkSubject(u.nuid), buf[:n]), jetstream.WithRetryAttempts(0))
		if err != nil {
			return classify("store "+u.what, err, false)
		}
		u.under = append(u.under, sentChunk{f, buf})
		u.size += int64(n)
		u.chunks++
	}
	for len(u.under) > 0 {
		if _, err := u.await(ctx); err != nil {
			return err
		}
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
			return nil, fmt.Errorf("store %s: %w: chunks out of order", u.what, ErrUnavailable)
		}
		u.last = ack.Sequence
		return first.buf[:blobChunk], nil
	case err := <-first.future.Err():
		return nil, classify("store "+u.what, err, false)
	case <-ctx.Done():
		return nil, classify("store "+u.what, ctx.Err(), false)
	}
}

// settle waits for what is still under way, so that nothing is stored behind the
// removal.
func (u *chunkUpload) settle(ctx context.Context) {
	for len(u.under) > 0 && ctx.Err() == nil {
		if _, err := u.await(ctx); err != nil {
			u.c.log.Debug("chunk of a given up object not stored", "err", err)
		}
	}
}

// readContent writes the content of an object to w and returns the digest of what
// it wrote. It wraps ErrNotFound when some of it is not there any more.
func (c *Conn) readContent(ctx context.Context, in bucket, b chunked, w io.Writer) (Digest, error) {
	sum := sha256.New()
	out := io.MultiWriter(w, sum)
	var at uint64
	tries := 0
	for got := 0; got < b.chunks; {
		n, last, err := c.readChunks(ctx, in, b.nuid, at+1, out)
		if err != nil {
			return Digest{}, err
		}
		got += n
		if n > 0 {
			at, tries = last, 0
			continue
		}
		if tries++; c.opts.Replicas == 1 || tries > blobRetries {
			return Digest{}, fmt.Errorf("%w: %d of %d chunks are there", ErrNotFound, got, b.chunks)
		}
		if err := pause(ctx, blobRetryPause); err != nil {
			return Digest{}, err
		}
	}
	return Digest(sum.Sum(nil)), nil
}

// readChunks writes the next few chunks to w. It reads without a consumer, which
// an agent would need further rights for.
func (c *Conn) readChunks(ctx context.Context, in bucket, id string, from uint64, w io.Writer) (n int, last uint64, err error) {
	req, err := json.Marshal(map[string]any{"seq": from, "next_by_subj": in.chunkSubject(id), "batch": blobWindow})
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
	if err := c.nc.PublishRequest("$JS.API.DIRECT.GET."+in.stream, inbox, req); err != nil {
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
