// SPDX-License-Identifier: Apache-2.0

package host

import (
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"sync/atomic"

	"github.com/pkg/sftp"
)

// fileSystem is the host's own directory over SFTP.
type fileSystem struct {
	s *Server
	c net.Conn
}

func (s *Server) files(c net.Conn) sftp.Handlers {
	f := &fileSystem{s, c}
	return sftp.Handlers{FileGet: f, FilePut: f, FileCmd: f, FileList: f}
}

// inside is a path below the host's directory.
func inside(name string) string {
	name = strings.TrimPrefix(name, "/")
	if name == "" {
		return "."
	}
	return name
}

// Fileread opens a file for reading.
func (f *fileSystem) Fileread(r *sftp.Request) (io.ReaderAt, error) {
	return f.s.root.Open(inside(r.Filepath))
}

// Filewrite opens a file for writing.
func (f *fileSystem) Filewrite(r *sftp.Request) (io.WriterAt, error) {
	flags, p := os.O_WRONLY, r.Pflags()
	if p.Creat {
		flags |= os.O_CREATE
	}
	if p.Trunc {
		flags |= os.O_TRUNC
	}
	file, err := f.s.root.OpenFile(inside(r.Filepath), flags, 0o600)
	if err != nil {
		return nil, err
	}
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	return &upload{File: file, fs: f, path: r.Filepath, cut: f.s.faults.CutUploadAfter, stall: f.s.faults.StallUploadAfter}, nil
}

// upload is a file that is being written.
type upload struct {
	*os.File
	fs         *fileSystem
	path       string
	cut, stall int64
	got        atomic.Int64
}

// WriteAt writes a chunk unless a fault says otherwise.
func (u *upload) WriteAt(p []byte, off int64) (int, error) {
	got := u.got.Add(int64(len(p)))
	switch {
	case u.cut > 0 && got >= u.cut:
		_ = u.fs.c.Close()
		return 0, io.ErrClosedPipe
	case u.stall > 0 && got >= u.stall:
		<-u.fs.s.stop
		return 0, io.ErrClosedPipe
	}
	return u.File.WriteAt(p, off)
}

// Close notes the upload.
func (u *upload) Close() error {
	u.fs.s.record(Entry{Command: u.path, Upload: true})
	return u.File.Close()
}

// Filecmd changes names and attributes.
func (f *fileSystem) Filecmd(r *sftp.Request) error {
	name, root := inside(r.Filepath), f.s.root
	switch r.Method {
	case "Remove":
		return root.Remove(name)
	case "Rename":
		if _, err := root.Stat(inside(r.Target)); err == nil {
			return fs.ErrExist
		}
		return root.Rename(name, inside(r.Target))
	case "Setstat":
		if r.AttrFlags().Size {
			return os.Truncate(f.s.dir+"/"+name, int64(r.Attributes().Size))
		}
		if r.AttrFlags().Permissions {
			return root.Chmod(name, r.Attributes().FileMode().Perm())
		}
		return nil
	case "Mkdir":
		return root.Mkdir(name, 0o700)
	default:
		return sftp.ErrSSHFxOpUnsupported
	}
}

// PosixRename replaces what has the name already.
func (f *fileSystem) PosixRename(r *sftp.Request) error {
	return f.s.root.Rename(inside(r.Filepath), inside(r.Target))
}

// Filelist tells attributes.
func (f *fileSystem) Filelist(r *sftp.Request) (sftp.ListerAt, error) {
	if r.Method != "Stat" {
		return nil, sftp.ErrSSHFxOpUnsupported
	}
	info, err := f.s.root.Stat(inside(r.Filepath))
	if err != nil {
		return nil, err
	}
	return lister{info}, nil
}

// lister is the list of one file.
type lister struct{ info fs.FileInfo }

// ListAt gives the one entry.
func (l lister) ListAt(out []fs.FileInfo, offset int64) (int, error) {
	if offset > 0 || len(out) == 0 {
		return 0, io.EOF
	}
	out[0] = l.info
	return 1, io.EOF
}
