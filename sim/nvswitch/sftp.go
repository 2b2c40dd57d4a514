// SPDX-License-Identifier: Apache-2.0

package nvswitch

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/pkg/sftp"

	"github.com/rackbus/rackbus/sim/internal/glob"
	"github.com/rackbus/rackbus/sim/reqlog"
)

// SFTP statuses in the request log.
const (
	fileOK     = 0
	fileFailed = 4
)

var (
	errDiskFull = errors.New("no space is left")
	errNoStat   = errors.New("the file cannot be looked at")
)

// transfers are the files of a switch over SFTP.
type transfers struct{ session *session }

func (t *transfers) knobs() SFTPKnobs {
	s := t.session.sw
	s.lock()
	defer s.mu.Unlock()
	return s.knobs.SFTP
}

func (t *transfers) denied(name string) bool {
	return slices.ContainsFunc(t.knobs().Denied, func(pattern string) bool { return glob.Compile(pattern).Match(name) })
}

// Fileread opens a file for reading.
func (t *transfers) Fileread(r *sftp.Request) (io.ReaderAt, error) {
	s := t.session.sw
	o := s.begin(reqlog.Entry{Protocol: reqlog.SFTP, Method: "GET", Path: r.Filepath})
	if t.denied(r.Filepath) {
		o.end(fileFailed, true)
		return nil, fs.ErrPermission
	}
	f, err := s.root.Open(inside(r.Filepath))
	if err != nil {
		o.end(fileFailed, true)
		return nil, err
	}
	return &download{File: f, operation: o}, nil
}

// download is a file that is being read.
type download struct {
	*os.File
	operation *operation
}

// Close records the download.
func (d *download) Close() error {
	d.operation.end(fileOK, true)
	return d.File.Close()
}

// Filewrite opens a file for writing.
func (t *transfers) Filewrite(r *sftp.Request) (io.WriterAt, error) {
	s := t.session.sw
	o := s.begin(reqlog.Entry{Protocol: reqlog.SFTP, Method: "PUT", Path: r.Filepath})
	if t.denied(r.Filepath) {
		o.end(fileFailed, true)
		return nil, fs.ErrPermission
	}
	flags, p := os.O_WRONLY, r.Pflags()
	if p.Creat {
		flags |= os.O_CREATE
	}
	if p.Trunc {
		flags |= os.O_TRUNC
	}
	if p.Excl {
		flags |= os.O_EXCL
	}
	f, err := s.root.OpenFile(inside(r.Filepath), flags, 0o644)
	if err != nil {
		o.end(fileFailed, true)
		return nil, err
	}
	return &upload{File: f, transfers: t, operation: o, knobs: t.knobs(), path: r.Filepath, started: time.Now()}, nil
}

// upload is a file that is being written.
type upload struct {
	*os.File
	transfers *transfers
	operation *operation
	knobs     SFTPKnobs
	path      string
	started   time.Time

	mu     sync.Mutex
	got    int64
	failed bool
}

// WriteAt stores a chunk unless a knob says otherwise.
func (u *upload) WriteAt(p []byte, off int64) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	s, k := u.transfers.session.sw, u.knobs
	u.got += int64(len(p))
	switch {
	case k.CutAfter > 0 && u.got >= k.CutAfter && u.transfers.spendCut():
		u.failed = true
		_ = u.transfers.session.conn.Close()
		return 0, io.ErrClosedPipe
	case k.StallAfter > 0 && u.got >= k.StallAfter:
		u.failed = true
		<-u.transfers.session.gone
		return 0, io.ErrClosedPipe
	case k.FailAfter > 0 && u.got >= k.FailAfter:
		u.failed = true
		return 0, errDiskFull
	}
	if k.BytesPerSecond > 0 {
		due := u.started.Add(time.Duration(u.got) * time.Second / time.Duration(k.BytesPerSecond))
		if !s.pause(time.Until(due), nil) && time.Until(due) > 0 {
			return 0, io.ErrClosedPipe
		}
	}
	stored := p
	if k.TruncateAfter > 0 && off+int64(len(p)) > k.TruncateAfter {
		stored = p[:max(k.TruncateAfter-off, 0)]
	}
	if k.Corrupt && off == 0 && len(stored) > 0 {
		stored = slices.Clone(stored)
		stored[0] ^= 0xff
	}
	if n, err := u.File.WriteAt(stored, off); err != nil {
		return n, err
	}
	return len(p), nil
}

// spendCut reports whether an upload is to be cut, and counts it.
func (t *transfers) spendCut() bool {
	s := t.session.sw
	s.lock()
	defer s.mu.Unlock()
	k := &s.knobs.SFTP
	if k.CutAfter == 0 {
		return false
	}
	if k.Cuts > 0 {
		if k.Cuts--; k.Cuts == 0 {
			k.CutAfter = 0
		}
	}
	return true
}

// Close records the upload with what the switch has of it.
func (u *upload) Close() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	o := u.operation
	o.entry.Bytes = u.got
	o.entry.Upload = &reqlog.Upload{
		File: path.Base(u.path), FileBytes: u.got, DurationMS: float64(time.Since(u.started)) / float64(time.Millisecond),
	}
	if f, err := u.transfers.session.sw.root.Open(inside(u.path)); err == nil {
		h := sha256.New()
		if _, err := io.Copy(h, f); err == nil {
			o.entry.SHA256 = hex.EncodeToString(h.Sum(nil))
		}
		_ = f.Close()
	}
	status := fileOK
	if u.failed {
		status = fileFailed
	}
	o.end(status, !u.failed)
	return u.File.Close()
}

// Filecmd changes names and attributes.
func (t *transfers) Filecmd(r *sftp.Request) error {
	s := t.session.sw
	method := map[string]string{"Remove": "REMOVE", "Rename": "RENAME", "PosixRename": "RENAME", "Setstat": "SETSTAT", "Mkdir": "MKDIR", "Rmdir": "REMOVE"}[r.Method]
	if method == "" {
		return sftp.ErrSSHFxOpUnsupported
	}
	o := s.begin(reqlog.Entry{Protocol: reqlog.SFTP, Method: method, Path: r.Filepath})
	err := t.change(r)
	status := fileOK
	if err != nil {
		status = fileFailed
	}
	o.end(status, true)
	return err
}

func (t *transfers) change(r *sftp.Request) error {
	root, name := t.session.sw.root, inside(r.Filepath)
	if t.denied(r.Filepath) {
		return fs.ErrPermission
	}
	switch r.Method {
	case "Remove", "Rmdir":
		return root.Remove(name)
	case "Rename":
		if _, err := root.Stat(inside(r.Target)); err == nil {
			return fs.ErrExist
		}
		fallthrough
	case "PosixRename":
		if t.knobs().NoRename {
			return sftp.ErrSSHFxOpUnsupported
		}
		return root.Rename(name, inside(r.Target))
	case "Mkdir":
		return root.Mkdir(name, 0o755)
	}
	attributes, flags := r.Attributes(), r.AttrFlags()
	if flags.Size {
		f, err := root.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		err = f.Truncate(int64(attributes.Size))
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	if flags.Permissions {
		return root.Chmod(name, attributes.FileMode().Perm())
	}
	return nil
}

// PosixRename replaces what has the name already.
func (t *transfers) PosixRename(r *sftp.Request) error {
	r.Method = "PosixRename"
	return t.Filecmd(r)
}

// Filelist tells attributes and lists directories.
func (t *transfers) Filelist(r *sftp.Request) (sftp.ListerAt, error) {
	s, k := t.session.sw, t.knobs()
	o := s.begin(reqlog.Entry{Protocol: reqlog.SFTP, Method: "STAT", Path: r.Filepath, ReadOnly: true})
	infos, err := t.look(r, k)
	if err != nil {
		o.end(fileFailed, true)
		return nil, err
	}
	o.end(fileOK, true)
	return lister(infos), nil
}

func (t *transfers) look(r *sftp.Request, k SFTPKnobs) ([]fs.FileInfo, error) {
	root := t.session.sw.root
	if k.NoStat {
		return nil, errNoStat
	}
	switch r.Method {
	case "List":
		entries, err := fs.ReadDir(root.FS(), inside(r.Filepath))
		if err != nil {
			return nil, err
		}
		var out []fs.FileInfo
		for _, e := range entries {
			if info, err := e.Info(); err == nil {
				out = append(out, info)
			}
		}
		return out, nil
	case "Stat":
		info, err := root.Stat(inside(r.Filepath))
		if err != nil {
			return nil, err
		}
		if k.NoSize {
			info = sizeless{info}
		}
		return []fs.FileInfo{info}, nil
	default:
		return nil, sftp.ErrSSHFxOpUnsupported
	}
}

// sizeless is a file that tells a size of 0.
type sizeless struct{ fs.FileInfo }

// Size is not told.
func (sizeless) Size() int64 { return 0 }

// lister is a list of files.
type lister []fs.FileInfo

// ListAt gives entries.
func (l lister) ListAt(out []fs.FileInfo, offset int64) (int, error) {
	if offset >= int64(len(l)) {
		return 0, io.EOF
	}
	n := copy(out, l[offset:])
	if n < len(out) {
		return n, io.EOF
	}
	return n, nil
}
