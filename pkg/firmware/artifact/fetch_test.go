// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"context"
	"crypto/sha256"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/secret"
)

func TestFetch(t *testing.T) {
	t.Parallel()
	body := content(1, 700<<10)
	s := newServer(t, body)
	r := newRig(t, func(o *Options) { o.Timing.Progress = time.Nanosecond })
	var done, total []int64
	res, err := r.fetch(s.URL+"/a/file.bin", want(body), func(q *Request) {
		q.Progress = func(d, of int64) { done, total = append(done, d), append(total, of) }
	})
	require.NoError(t, err)
	require.Equal(t, Result{SHA256: sha256.Sum256(body), Size: int64(len(body)), Attempts: 1}, res)
	r.requireFile(body)
	require.IsNonDecreasing(t, done)
	require.Equal(t, int64(len(body)), done[len(done)-1])
	require.Equal(t, int64(len(body)), total[0])
}

func TestFaults(t *testing.T) {
	t.Parallel()
	body := content(1, 600<<10)
	for name, c := range map[string]struct {
		fault    func(*server)
		attempts int
		resumed  bool
		err      error
		text     string
	}{
		"twice 503":                 {fault: func(s *server) { s.statuses = []int{503, 503} }, attempts: 3},
		"always 503":                {fault: func(s *server) { s.statuses = []int{503, 503, 503} }, err: ErrStatus, text: "status 503 (tried 3 times)"},
		"too many requests":         {fault: func(s *server) { s.statuses = []int{429} }, attempts: 2},
		"404":                       {fault: func(s *server) { s.statuses = []int{404} }, err: ErrStatus, text: "status 404"},
		"401":                       {fault: func(s *server) { s.statuses = []int{401} }, err: ErrStatus, text: "status 401"},
		"no body":                   {fault: func(s *server) { s.statuses = []int{204} }, err: ErrEmpty},
		"cut, goes on":              {fault: func(s *server) { s.cut, s.cuts = 300<<10, 1 }, attempts: 2, resumed: true},
		"cut often, but gets on":    {fault: func(s *server) { s.cut, s.cuts = 50<<10, 8 }, attempts: 9, resumed: true},
		"cut, starts over":          {fault: func(s *server) { s.cut, s.cuts, s.noRange = 300<<10, 1, true }, attempts: 2},
		"cut without getting on":    {fault: func(s *server) { s.cut, s.cuts, s.noRange = 300<<10, 9, true }, err: errAny, text: "broke after 307200 of 614400 bytes"},
		"another digest":            {fault: func(s *server) { s.body = content(2, 600<<10) }, err: ErrDigest, text: "expected "},
		"weak tag, digest is known": {fault: func(s *server) { s.cut, s.cuts, s.etag = 300<<10, 1, `W/"one"` }, attempts: 2, resumed: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, r := newServer(t, body), newRig(t)
			c.fault(s)
			res, err := r.fetch(s.URL+"/file.bin", want(body))
			if c.err != nil {
				require.Error(t, err)
				if !errors.Is(c.err, errAny) {
					require.ErrorIs(t, err, c.err)
				}
				require.ErrorContains(t, err, c.text)
				require.NoFileExists(t, r.file())
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.attempts, res.Attempts)
			require.Equal(t, c.resumed, res.Resumed)
			r.requireFile(body)
		})
	}
}

var errAny = errors.New("any")

// TestChangedFileStartsOver changes the file between the two halves.
func TestChangedFileStartsOver(t *testing.T) {
	t.Parallel()
	one, two := content(1, 400<<10), content(2, 500<<10)
	s, r := newServer(t, one), newRig(t, func(o *Options) { o.Timing.Attempts = 1 })
	s.change(func() { s.cut, s.cuts = 300<<10, 1 })
	_, err := r.fetch(s.URL + "/file.bin")
	require.Error(t, err)
	require.Len(t, r.names(), 2, "a part and what it is of")
	s.change(func() { s.body, s.etag = two, `"two"` })
	res, err := r.fetch(s.URL + "/file.bin")
	require.NoError(t, err)
	require.False(t, res.Resumed)
	r.requireFile(two)
	got := s.requests()[1]
	require.Equal(t, "bytes=307200-", got.header.Get("Range"))
	require.Equal(t, `"one"`, got.header.Get("If-Range"))
}

// TestRangeOfChangedFileIsNotUsed has a server that gives the rest of another file of
// the same size, and does not heed the condition that it be the same.
func TestRangeOfChangedFileIsNotUsed(t *testing.T) {
	t.Parallel()
	one, two := content(1, 400<<10), content(2, 400<<10)
	s, r := newServer(t, one), newRig(t, func(o *Options) { o.Timing.Attempts = 1 })
	s.change(func() { s.cut, s.cuts, s.noIfRange = 300<<10, 1, true })
	_, err := r.fetch(s.URL + "/file.bin")
	require.Error(t, err)
	s.change(func() { s.body, s.etag = two, `"two"` })
	r.f.o.Timing.Attempts = 3
	res, err := r.fetch(s.URL + "/file.bin")
	require.NoError(t, err)
	require.False(t, res.Resumed)
	r.requireFile(two)
}

// TestAnotherProcessGoesOn lets a second fetcher find what the first one had, also
// when nothing but the last step was missing.
func TestAnotherProcessGoesOn(t *testing.T) {
	t.Parallel()
	body := content(1, 400<<10)
	for _, cut := range []int{1, 300 << 10, 400 << 10} {
		s, r := newServer(t, body), newRig(t, func(o *Options) { o.Timing.Progress = time.Nanosecond })
		ctx, cancel := context.WithCancelCause(t.Context())
		stop := errors.New("the process ends")
		s.change(func() { s.cut, s.cuts = cut, 1 })
		if cut == len(body) {
			// Everything is there, and the process dies before it is put in place.
			s.change(func() { s.announce = cut + 1 })
		}
		_, err := r.f.Fetch(ctx, Request{
			Location: r.location("http", s.URL+"/file.bin"), Dir: r.dir, Path: "prod/file.bin",
			Progress: func(done, _ int64) {
				if done >= int64(cut) {
					cancel(stop)
				}
			},
		})
		require.ErrorIs(t, err, stop)
		require.NoFileExists(t, r.file())
		cancel(nil)
		s.change(func() { s.announce = 0 })
		other := New(quick())
		res, err := other.Fetch(t.Context(), Request{Location: r.location("http", s.URL+"/file.bin"), Dir: r.dir, Path: "prod/file.bin"})
		other.Close()
		require.NoError(t, err)
		require.Equal(t, sha256.Sum256(body), res.SHA256)
		r.requireFile(body)
	}
}

// TestAnnouncedSize has a server that announces more than it has. Only a digest
// can tell that what came is all there is.
func TestAnnouncedSize(t *testing.T) {
	t.Parallel()
	body := content(1, 400<<10)
	s, r := newServer(t, body), newRig(t)
	s.change(func() { s.announce = 500 << 10 })
	_, err := r.fetch(s.URL + "/file.bin")
	require.ErrorContains(t, err, "of 512000 bytes")
	require.NoFileExists(t, r.file())
	res, err := r.fetch(s.URL+"/file.bin", want(body))
	require.NoError(t, err)
	require.Equal(t, sha256.Sum256(body), res.SHA256)
}

// TestPartOfAnotherFileIsNotUsed has the part of a former location in the place.
func TestPartOfAnotherFileIsNotUsed(t *testing.T) {
	t.Parallel()
	one, two := content(1, 400<<10), content(2, 400<<10)
	s, other := newServer(t, one), newServer(t, two)
	r := newRig(t, func(o *Options) { o.Timing.Attempts = 1 })
	s.change(func() { s.cut, s.cuts = 300<<10, 1 })
	_, err := r.fetch(s.URL + "/file.bin")
	require.Error(t, err)
	_, err = r.fetch(other.URL + "/file.bin")
	require.NoError(t, err)
	require.Empty(t, other.requests()[0].header.Get("Range"))
	r.requireFile(two)
}

// TestMixedPartsAreFetchedAgain has a part whose bytes are not what its tag says.
func TestMixedPartsAreFetchedAgain(t *testing.T) {
	t.Parallel()
	body := content(1, 400<<10)
	s, r := newServer(t, body), newRig(t, func(o *Options) { o.Timing.Attempts = 1 })
	s.change(func() { s.cut, s.cuts = 300<<10, 1 })
	_, err := r.fetch(s.URL+"/file.bin", want(body))
	require.Error(t, err)
	for _, name := range r.names() {
		if strings.HasSuffix(name, partSuffix) {
			f, err := os.OpenFile(filepath.Join(r.dir, "prod", name), os.O_WRONLY, 0)
			require.NoError(t, err)
			_, err = f.WriteAt([]byte("other bytes"), 10)
			require.NoError(t, errors.Join(err, f.Close()))
		}
	}
	r.f.o.Timing.Attempts = 3
	res, err := r.fetch(s.URL+"/file.bin", want(body))
	require.NoError(t, err)
	require.False(t, res.Resumed)
	require.Equal(t, 2, res.Attempts)
	r.requireFile(body)
}

func TestStall(t *testing.T) {
	t.Parallel()
	s := newServer(t, content(1, 10))
	s.change(func() { s.hold = true })
	r := newRig(t, func(o *Options) { o.Timing.Stall, o.Timing.Attempts = 500*time.Millisecond, 2 })
	_, err := r.fetch(s.URL + "/file.bin")
	require.ErrorIs(t, err, errStalled)
	require.Len(t, s.requests(), 2)
}

func TestTotalTime(t *testing.T) {
	t.Parallel()
	s := newServer(t, content(1, 10))
	s.change(func() { s.hold = true })
	r := newRig(t, func(o *Options) { o.Timing.File = 50 * time.Millisecond })
	_, err := r.fetch(s.URL + "/file.bin")
	require.ErrorIs(t, err, ErrLimit)
}

func TestSizes(t *testing.T) {
	t.Parallel()
	body := content(1, 400<<10)
	s := newServer(t, body)
	r := newRig(t, func(o *Options) { o.Limits.MaxFile = 300 << 10 })
	_, err := r.fetch(s.URL + "/file.bin")
	require.ErrorIs(t, err, ErrLimit)
	require.NoFileExists(t, r.file())

	r = newRig(t)
	budget := NewBudget(500 << 10)
	_, err = r.fetch(s.URL+"/file.bin", func(q *Request) { q.Budget = budget })
	require.NoError(t, err)
	_, err = r.fetch(s.URL+"/file.bin", func(q *Request) { q.Budget, q.Path = budget, "prod/two.bin" })
	require.ErrorIs(t, err, ErrLimit)

	// Tries of one file count once.
	s.change(func() { s.cut, s.cuts, s.noRange = 300<<10, 1, true })
	r = newRig(t)
	_, err = r.fetch(s.URL+"/file.bin", func(q *Request) { q.Budget = NewBudget(500 << 10) })
	require.NoError(t, err)
}

func TestReuse(t *testing.T) {
	t.Parallel()
	body := content(1, 1000)
	put := func(r *rig, data []byte) {
		require.NoError(t, os.MkdirAll(filepath.Dir(r.file()), 0o755))
		require.NoError(t, os.WriteFile(r.file(), data, 0o600))
	}
	for name, c := range map[string]struct {
		there  []byte
		change func(*Request)
		server func(*server)
		reused bool
		asked  []string
	}{
		"right digest":        {there: body, change: want(body), reused: true},
		"wrong digest":        {there: content(2, 1000), change: want(body), asked: []string{"GET"}},
		"same length":         {there: body, reused: true, asked: []string{"HEAD"}},
		"other length":        {there: body[:999], asked: []string{"HEAD", "GET"}},
		"empty":               {there: []byte{}, asked: []string{"GET"}},
		"source does not say": {there: body, server: func(s *server) { s.statuses = []int{405} }, asked: []string{"HEAD", "GET"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, r := newServer(t, body), newRig(t)
			put(r, c.there)
			if c.server != nil {
				c.server(s)
			}
			if c.change == nil {
				c.change = func(*Request) {}
			}
			res, err := r.fetch(s.URL+"/file.bin", c.change)
			require.NoError(t, err)
			require.Equal(t, c.reused, res.Reused)
			require.Equal(t, sha256.Sum256(body), res.SHA256)
			var asked []string
			for _, q := range s.requests() {
				asked = append(asked, q.method)
			}
			require.Equal(t, c.asked, asked)
			r.requireFile(body)
		})
	}
	t.Run("something else", func(t *testing.T) {
		r := newRig(t)
		require.NoError(t, os.MkdirAll(r.file(), 0o755))
		_, err := r.fetch("http://127.0.0.1:1/file.bin")
		require.ErrorIs(t, err, ErrNotRegular)
	})
}

func TestLocalFiles(t *testing.T) {
	t.Parallel()
	body := content(1, 500<<10)
	r := newRig(t)
	outside := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(outside, "secret.bin"), body, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(r.dir, "source.bin"), body, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(r.dir, "empty.bin"), nil, 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(r.dir, "folder.bin"), 0o755))
	require.NoError(t, os.Symlink(filepath.Join(outside, "secret.bin"), filepath.Join(r.dir, "link.bin")))
	fetch := func(location string) (Result, error) {
		return r.f.Fetch(t.Context(), Request{Location: r.location("file", location), Dir: r.dir, Path: "prod/file.bin"})
	}
	for location, cause := range map[string]error{
		"empty.bin":                          ErrEmpty,
		"folder.bin":                         ErrNotRegular,
		"none.bin":                           fs.ErrNotExist,
		filepath.Join(outside, "secret.bin"): ErrRefused,
		"../" + filepath.Base(outside) + "/s.bin":   ErrRefused,
		"file://" + filepath.Join(outside, "s.bin"): ErrRefused,
		"/etc/passwd": ErrRefused,
	} {
		_, err := fetch(location)
		require.ErrorIs(t, err, cause, location)
	}
	_, err := fetch("link.bin")
	require.Error(t, err, "a link does not lead out of the directory")
	for _, location := range []string{"source.bin", filepath.Join(r.dir, "source.bin"), "file://" + filepath.Join(r.dir, "source.bin")} {
		require.NoError(t, os.RemoveAll(filepath.Join(r.dir, "prod")))
		res, err := fetch(location)
		require.NoError(t, err)
		require.Equal(t, sha256.Sum256(body), res.SHA256)
		r.requireFile(body)
	}
	res, err := fetch("source.bin")
	require.NoError(t, err)
	require.True(t, res.Reused)
	r.f.o.Policy.Schemes = []string{"https"}
	require.NoError(t, os.Remove(r.file()))
	_, err = fetch("source.bin")
	require.ErrorIs(t, err, ErrRefused)
}

// TestToken expects the token at its host only, and nowhere in what is told.
func TestToken(t *testing.T) {
	t.Parallel()
	body := content(1, 1000)
	away := newServer(t, body)
	home := newServer(t, body)
	r := newRig(t)
	token := func(typ string) func(*Request) {
		return func(q *Request) {
			l, err := Parse(typ, q.Location.url.String())
			require.NoError(t, err)
			q.Location, q.Token = l, secret.New("pl4nted")
		}
	}
	_, err := r.fetch(home.URL+"/file.bin", token("https"))
	require.NoError(t, err)
	require.NoError(t, os.Remove(r.file()))
	_, err = r.fetch(home.URL+"/file.bin", token("JFrog "))
	require.NoError(t, err)
	require.Empty(t, home.requests()[0].header.Get(tokenHeader))
	require.Equal(t, "pl4nted", home.requests()[1].header.Get(tokenHeader))
	_, err = r.fetch(home.URL+"/file.bin", token("artifactory"))
	require.NoError(t, err)
	require.Equal(t, "HEAD", home.requests()[2].method)
	require.Equal(t, "pl4nted", home.requests()[2].header.Get(tokenHeader))

	require.NoError(t, os.Remove(r.file()))
	home.change(func() { home.redirect = away.URL + "/else.bin" })
	_, err = r.fetch(home.URL+"/file.bin?q=pl4nted", token("artifactory"))
	require.NoError(t, err)
	got := away.requests()[0]
	require.Empty(t, got.header.Get(tokenHeader))
	for name, values := range got.header {
		require.NotContains(t, strings.Join(values, " "), "pl4nted", name)
	}
	away.change(func() { away.statuses = []int{403} })
	require.NoError(t, os.Remove(r.file()))
	_, err = r.fetch(strings.Replace(home.URL, "//", "//user:pl4nted@", 1)+"/file.bin?q=pl4nted", token("artifactory"))
	require.ErrorIs(t, err, ErrStatus)
	require.NotContains(t, err.Error(), "pl4nted")
	user, password, ok := (&http.Request{Header: home.requests()[4].header}).BasicAuth()
	require.True(t, ok)
	require.Equal(t, "user pl4nted", user+" "+password)
	require.Empty(t, away.requests()[1].header.Get("Authorization"))
	_, err = r.fetch("http://user:pl4nted@127.0.0.1:1/file.bin?q=pl4nted")
	require.Error(t, err)
	require.NotContains(t, err.Error(), "pl4nted")
}

func TestSweep(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	deep := filepath.Join(dir, "firmware_objects", "one", "prod")
	require.NoError(t, os.MkdirAll(deep, 0o755))
	old, recent := time.Now().Add(-48*time.Hour), time.Now()
	for name, at := range map[string]time.Time{
		".a.bin.0123456789abcdef.rackbus.part":                        old,
		".a.bin.0123456789abcdef.rackbus.part.json":                   old,
		".b.bin.0123456789abcdef.rackbus.part":                        recent,
		".c.bin.6f9619ff-8b86-4d01-b42d-00cf4fc964ff.rms.fw.4711.tmp": old,
		".hidden":     old,
		"kept.bin":    old,
		".a.bin.part": old,
	} {
		file := filepath.Join(deep, name)
		require.NoError(t, os.WriteFile(file, []byte("x"), 0o600))
		require.NoError(t, os.Chtimes(file, at, at))
	}
	n, err := Sweep(t.Context(), dir, 24*time.Hour)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	left, err := os.ReadDir(deep)
	require.NoError(t, err)
	require.Len(t, left, 4)
	n, err = Sweep(t.Context(), filepath.Join(dir, "none"), 0)
	require.NoError(t, err)
	require.Zero(t, n)
}
