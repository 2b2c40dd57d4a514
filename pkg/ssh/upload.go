// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pkg/sftp"
)

const (
	// uploadWindow is how many chunks are under way at a time: 2 MiB, which is what
	// the receive window of OpenSSH takes.
	uploadWindow = 64
	// uploadChunk is the largest that every SFTP server takes.
	uploadChunk = 32 << 10
	// defaultMode of uploaded files.
	defaultMode fs.FileMode = 0o644
	// othersMode are the rights of all but the owner, ownerWrites is his to write.
	othersMode  fs.FileMode = 0o077
	ownerWrites fs.FileMode = 0o200
	// stallLooks is how often per stall limit the progress is looked at.
	stallLooks = 10
)

// Source is what is uploaded; an io.SectionReader is one.
type Source interface {
	io.ReaderAt
	Size() int64
}

// Upload is a file to be put on the host.
type Upload struct {
	Source Source
	// Path on the host. The bytes go to TempPath first, so that nothing ever reads
	// half a file under this name.
	Path string
	// Mode of the file; default 0644.
	Mode fs.FileMode
	// Resume goes on with what an earlier try has left, and sends nothing when the
	// file is there already. Size and SHA-256 decide; the host needs the commands
	// head and sha256sum for it, else everything is sent.
	Resume bool
	// Verify compares the SHA-256 on the host with the source before the file gets
	// its name. The host needs sha256sum.
	Verify bool
	// Limit bounds the whole upload and Stall the time without progress; by default
	// those of Timing.
	Limit, Stall time.Duration
	// Progress is told how many bytes of the source are under way or there. It is
	// called by one goroutine at a time and must not block.
	Progress func(sent, total int64)
}

// Uploaded is how an upload went.
type Uploaded struct {
	// Sent is how many bytes were sent; Resumed how many were there already.
	Sent, Resumed int64
	// Unchanged says that the file was there as it should be.
	Unchanged bool
}

// TempPath is where the bytes of an upload to name lie until they are complete.
func TempPath(name string) string { return path.Join(path.Dir(name), "."+path.Base(name)+".part") }

// Upload puts a file on the host. A failed one leaves at most the file at
// TempPath, which the next try to the same path removes or, with Resume, goes on
// with.
func (c *Client) Upload(ctx context.Context, u Upload) (Uploaded, error) {
	ctx, k := c.begin(ctx, "upload", cmp.Or(u.Limit, c.opts.Timing.Upload))
	defer k.end()
	r := &uploadReader{guard: c.opts.Guard, u: u, hash: sha256.New()}
	var done Uploaded
	if u.Resume {
		var err error
		if done.Resumed, done.Unchanged, err = c.resumable(ctx, u, r.hash); err != nil || done.Unchanged {
			return done, err
		}
	}
	r.rest = io.NewSectionReader(u.Source, done.Resumed, u.Source.Size()-done.Resumed)
	err := c.send(ctx, k, r, done.Resumed)
	done.Sent = r.sent.Load()
	if err == nil && u.Verify {
		err = c.verify(ctx, k, u, r.hash)
	}
	if err == nil {
		err = k.files(ctx, func(f *sftp.Client) error { return rename(f, TempPath(u.Path), u.Path) }, func() bool { return false })
	}
	if err != nil && IsKind(err, KindFile) && !u.Resume && ctx.Err() == nil {
		// A full disk should not stay full.
		if rerr := c.Remove(ctx, TempPath(u.Path)); rerr != nil {
			err = errors.Join(err, rerr)
		}
	}
	return done, err
}

// send streams the source from an offset and checks how much has arrived.
func (c *Client) send(ctx context.Context, k *call, r *uploadReader, offset int64) error {
	ctx, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	u := r.u
	r.ended = ctx.Done()
	r.touch()
	stall := cmp.Or(u.Stall, c.opts.Timing.UploadStall)
	if !c.spawn(func() { r.watch(ctx, stall, cut) }) {
		return ErrClosed
	}
	temp := TempPath(u.Path)
	return k.files(ctx, func(f *sftp.Client) error {
		out, err := openTemp(f, temp, offset)
		if err != nil {
			return err
		}
		defer func() { _ = out.Close() }()
		if mode := cmp.Or(u.Mode, defaultMode); mode.Perm()&othersMode == 0 {
			// Nobody else may read it while it is being written either.
			if err := out.Chmod(mode | ownerWrites); err != nil {
				return err
			}
		}
		if _, err := out.ReadFrom(r); err != nil {
			return err
		}
		if got := offset + r.sent.Load(); got != u.Source.Size() {
			return fmt.Errorf("the source ended after %d of %d bytes: %w", got, u.Source.Size(), io.ErrUnexpectedEOF)
		}
		if err := out.Close(); err != nil {
			return err
		}
		r.touch()
		if err := f.Chmod(temp, cmp.Or(u.Mode, defaultMode)); err != nil {
			return err
		}
		return complete(f, temp, u.Source.Size())
	}, func() bool { return r.sent.Load() == 0 })
}

func openTemp(f *sftp.Client, temp string, offset int64) (*sftp.File, error) {
	if offset == 0 {
		if err := absent(f.Remove(temp)); err != nil {
			return nil, err
		}
		return f.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	}
	out, err := f.OpenFile(temp, os.O_WRONLY)
	if err != nil {
		return nil, err
	}
	// What lies behind the offset may have holes.
	if err := out.Truncate(offset); err != nil {
		_ = out.Close()
		return nil, err
	}
	if _, err := out.Seek(offset, io.SeekStart); err != nil {
		_ = out.Close()
		return nil, err
	}
	return out, nil
}

// complete compares the size on the host with what was sent. Some servers tell no
// attributes at all.
func complete(f *sftp.Client, name string, want int64) error {
	info, err := f.Stat(name)
	if err != nil {
		return err
	}
	if info.Size() == 0 && info.Mode() == 0 || info.Size() == want {
		return nil
	}
	return fmt.Errorf("%w: %d of %d bytes", ErrShortWrite, info.Size(), want)
}

// rename gives the complete file its name, in place of an older one.
func rename(f *sftp.Client, from, to string) error {
	if _, ok := f.HasExtension("posix-rename@openssh.com"); ok {
		return f.PosixRename(from, to)
	}
	if err := absent(f.Remove(to)); err != nil {
		return err
	}
	return f.Rename(from, to)
}

func (c *Client) verify(ctx context.Context, k *call, u Upload, sum hash.Hash) error {
	got, err := c.digest(ctx, TempPath(u.Path), u.Source.Size())
	if err != nil {
		return err
	}
	if want := hex.EncodeToString(sum.Sum(nil)); got != want {
		return k.fail(KindFile, true, fmt.Errorf("%w: %s instead of %s", ErrDigest, got, want))
	}
	return nil
}

// resumable finds what an earlier try has left that is the same as the source.
// sum is left with the digest of that part.
func (c *Client) resumable(ctx context.Context, u Upload, sum hash.Hash) (offset int64, unchanged bool, err error) {
	info, err := c.Stat(ctx, u.Path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, false, err
	}
	if err == nil && info.Size() == u.Source.Size() {
		same, err := c.samePrefix(ctx, u, u.Path, info.Size(), sum)
		if err != nil || same {
			return 0, same, err
		}
	}
	info, err = c.Stat(ctx, TempPath(u.Path))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	// Chunks arrive in any order: the last ones may have holes between them.
	offset = min(info.Size(), u.Source.Size()) - uploadWindow*uploadChunk
	if offset <= 0 {
		return 0, false, nil
	}
	same, err := c.samePrefix(ctx, u, TempPath(u.Path), offset, sum)
	if err != nil || !same {
		return 0, false, err
	}
	return offset, false, nil
}

// samePrefix compares the beginning of a file on the host with the source. A host
// that cannot tell digests has nothing to resume.
func (c *Client) samePrefix(ctx context.Context, u Upload, name string, n int64, sum hash.Hash) (bool, error) {
	got, err := c.digest(ctx, name, n)
	var exit *ExitError
	if errors.As(err, &exit) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	sum.Reset()
	if _, err := io.Copy(sum, io.NewSectionReader(u.Source, 0, n)); err != nil {
		return false, fmt.Errorf("read the source: %w", err)
	}
	if got == hex.EncodeToString(sum.Sum(nil)) {
		return true, nil
	}
	sum.Reset()
	return false, nil
}

// digest is the SHA-256 of the first n bytes of a file on the host.
func (c *Client) digest(ctx context.Context, name string, n int64) (string, error) {
	out, err := c.Exec(ctx, Command{
		Line:  fmt.Sprintf("test -f %[2]s && head -c %[1]d -- %[2]s | sha256sum", n, Quote(name)),
		Label: "sha256sum " + path.Base(name), Limit: c.opts.Timing.Upload,
	})
	if err != nil {
		return "", err
	}
	sum, _, _ := strings.Cut(strings.TrimSpace(string(out.Stdout)), " ")
	return sum, nil
}

// errEnded ends a transfer whose context tells why.
var errEnded = errors.New("transfer ended")

// uploadReader hands the source to the transfer: it asks the guard before every
// chunk, and notes that there is progress.
type uploadReader struct {
	guard Guard
	u     Upload
	rest  *io.SectionReader
	hash  hash.Hash
	// ended is closed when the transfer has to end.
	ended <-chan struct{}

	sent  atomic.Int64
	moved atomic.Int64
}

// Size tells how much is left. Without it the transfer would wait for the answer
// to every chunk.
func (r *uploadReader) Size() int64 { return r.rest.Size() - r.sent.Load() }

func (r *uploadReader) Read(p []byte) (int, error) {
	if err := check(r.guard); err != nil {
		return 0, err
	}
	select {
	case <-r.ended:
		return 0, errEnded
	default:
	}
	n, err := r.rest.Read(p)
	r.hash.Write(p[:n])
	sent := r.sent.Add(int64(n))
	r.touch()
	if r.u.Progress != nil && n > 0 {
		r.u.Progress(r.u.Source.Size()-r.rest.Size()+sent, r.u.Source.Size())
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("read the source: %w", err)
	}
	return n, err
}

func (r *uploadReader) touch() { r.moved.Store(time.Now().UnixNano()) }

// watch ends the transfer when nothing moves for too long. A chunk is asked for
// when an earlier one was acknowledged, so that reads tell of the host's progress.
func (r *uploadReader) watch(ctx context.Context, stall time.Duration, cut context.CancelCauseFunc) {
	tick := time.NewTicker(max(stall/stallLooks, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if idle := time.Since(time.Unix(0, r.moved.Load())); idle >= stall {
			cut(fmt.Errorf("%w for %s after %d bytes", ErrStalled, stall, r.sent.Load()))
			return
		}
	}
}
