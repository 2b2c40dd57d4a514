// SPDX-License-Identifier: Apache-2.0

package ssh_test

import (
	"crypto/rand"
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/ssh"
	"github.com/rackbus/rackbus/pkg/ssh/sshtest"
)

var long = flag.Bool("long", false, "upload 1 GiB beside sftp(1), not 64 MiB, or 16 MiB with the race detector")

// The line between client and server, and what Upload has to reach on it.
const (
	lineDelay = 20 * time.Millisecond
	leastRate = 0.6
	// raceRate is asked of a build with the race detector, whose ciphers and copies
	// are slower than the line. One chunk per round trip would give 0.02.
	raceRate = 0.1
	// rounds bounds how often both are measured again on a machine that is busy.
	rounds = 3
)

// TestUploadBesideSFTP: an upload over a long line takes hardly longer than that
// of the OpenSSH client. Both go through the same proxy to the same server.
func TestUploadBesideSFTP(t *testing.T) {
	size, least := int64(64<<20), leastRate
	if raceEnabled {
		size, least = 16<<20, raceRate
	}
	if *long {
		size = 1 << 30
	}
	s := sshtest.StartOpenSSH(t, sshtest.Options{})
	p := sshtest.StartProxy(t, s.Addr())
	p.Delay(lineDelay)
	source, sum := sourceFile(t, size)
	ratio := 0.0
	for round := 0; round < rounds && ratio < least; round++ {
		theirs := timed(t, sum, func(path string) { sftpPut(t, s, p.Port(), source, path) })
		ours := timed(t, sum, func(path string) { upload(t, s, p.Port(), source, path) })
		ratio = theirs.Seconds() / ours.Seconds()
		t.Logf("%d MiB, %s each way: Upload %.1f MiB/s, sftp(1) %.1f MiB/s, ratio %.2f",
			size>>20, lineDelay, rate(size, ours), rate(size, theirs), ratio)
	}
	require.GreaterOrEqual(t, ratio, least)
}

// TestUploadToAStoppedServer: a server that takes nothing more, although its
// machine still acknowledges packets, ends the upload within the stall limit.
func TestUploadToAStoppedServer(t *testing.T) {
	t.Parallel()
	const stall = 2 * time.Second
	s := sshtest.StartOpenSSH(t, sshtest.Options{})
	c := dialOpenSSH(t, s, s.Port(), func(o *ssh.Options) { o.Timing.UploadStall = stall })
	src, data := tempFile(t, 16<<20)
	path := newPath(t)
	var stopped time.Time
	_, err := c.Upload(t.Context(), ssh.Upload{Source: src, Path: path, Progress: func(sent, total int64) {
		if stopped.IsZero() && sent >= total/4 {
			s.Freeze(true)
			stopped = time.Now()
		}
	}})
	took := time.Since(stopped)
	s.Freeze(false)
	require.ErrorIs(t, err, ssh.ErrStalled)
	require.True(t, ssh.IsKind(err, ssh.KindTimeout), "%v", err)
	require.True(t, errorsAs(err).OutcomeUnknown())
	require.GreaterOrEqual(t, took, stall)
	// The polite end of the session comes on top.
	require.Less(t, took, patience/2)
	require.NoFileExists(t, path)

	_, err = c.Upload(t.Context(), ssh.Upload{Source: src, Path: path, Resume: true, Verify: true})
	require.NoError(t, err)
	require.Equal(t, sha256.Sum256(data), sha256.Sum256(readFile(t, path)))
}

// sourceFile writes a file that cannot be compressed.
func sourceFile(t *testing.T, size int64) (path string, sum [sha256.Size]byte) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "source.bin")
	f, err := os.Create(path)
	require.NoError(t, err)
	defer f.Close()
	_, err = io.CopyN(f, rand.Reader, size)
	require.NoError(t, err)
	return path, fileSum(t, path)
}

func fileSum(t *testing.T, path string) (sum [sha256.Size]byte) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	require.NoError(t, err)
	h.Sum(sum[:0])
	return sum
}

// timed returns how long an upload takes, and checks what has arrived.
func timed(t *testing.T, want [sha256.Size]byte, put func(path string)) time.Duration {
	t.Helper()
	path := newPath(t)
	start := time.Now()
	put(path)
	took := time.Since(start)
	require.Equal(t, want, fileSum(t, path))
	require.NoError(t, os.Remove(path))
	return took
}

// upload connects first, as sftp(1) has to.
func upload(t *testing.T, s *sshtest.OpenSSH, port uint16, source, path string) {
	t.Helper()
	c := dialOpenSSH(t, s, port, func(o *ssh.Options) { o.Timing.Upload = 10 * time.Minute })
	f, err := os.Open(source)
	require.NoError(t, err)
	defer f.Close()
	info, err := f.Stat()
	require.NoError(t, err)
	_, err = c.Upload(t.Context(), ssh.Upload{Source: io.NewSectionReader(f, 0, info.Size()), Path: path})
	require.NoError(t, err)
}

// sftpPut uploads with the client that comes with OpenSSH, as it does by itself.
func sftpPut(t *testing.T, s *sshtest.OpenSSH, port uint16, source, path string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sftp", "-q", "-b", "-", "-F", "none", "-P", portText(port),
		"-i", filepath.Join(s.Dir, "user"), "-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=no",
		"-o", "UserKnownHostsFile=/dev/null", s.User+"@127.0.0.1")
	cmd.Stdin = strings.NewReader(fmt.Sprintf("put %q %q\n", source, path))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func rate(size int64, took time.Duration) float64 {
	return float64(size) / (1 << 20) / took.Seconds()
}
