// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// ErrNoCommit says that the clone does not hold a commit, or that there is none.
var ErrNoCommit = errors.New("the commit is not in this clone")

// programsOf are the programs that are built of a release: those that speak to each other over its streams.
var programsOf = []string{programAPI, programJobs, programCompute, programPowerShelf}

// Release builds API, jobs service and agents of trays and shelves as they were at a commit, and returns the directory for
// Options.Programs. The other programs in it are those of this tree. A clone without the commit is ErrNoCommit.
func Release(t testing.TB, commit string) (string, error) {
	t.Helper()
	now, err := programs()
	require.NoError(t, err)
	root, err := repository()
	require.NoError(t, err)
	find := exec.CommandContext(t.Context(), "git", "cat-file", "-e", commit+"^{commit}")
	find.Dir = root
	if out, err := find.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s: %w: %s", ErrNoCommit, commit, err, out)
	}
	dir := filepath.Join(root, "bin", "test-"+commit[:12])
	unlock, err := lock(dir + ".lock")
	require.NoError(t, err)
	defer unlock()
	if _, err := os.Stat(dir); err != nil {
		require.NoError(t, buildRelease(t.Context(), root, commit, dir, t.TempDir()))
	}
	out := t.TempDir()
	entries, err := os.ReadDir(now)
	require.NoError(t, err)
	for _, e := range entries {
		from := filepath.Join(dir, e.Name())
		if _, err := os.Stat(from); err != nil {
			from = filepath.Join(now, e.Name())
		}
		require.NoError(t, os.Symlink(from, filepath.Join(out, e.Name())))
	}
	return out, nil
}

// buildRelease builds from an export of the commit. The directory appears when it is complete.
func buildRelease(ctx context.Context, root, commit, dir, source string) error {
	export := exec.CommandContext(ctx, "sh", "-c", `git archive "$1" | tar -x -C "$2"`, "sh", commit, source)
	export.Dir = root
	if out, err := export.CombinedOutput(); err != nil {
		return fmt.Errorf("export %s: %w\n%s", commit, err, out)
	}
	partial := dir + ".partial"
	if err := errors.Join(os.RemoveAll(partial), os.MkdirAll(partial, 0o755)); err != nil {
		return fmt.Errorf("build %s: %w", commit, err)
	}
	args := []string{"build", "-buildvcs=false", "-ldflags=-s -w", "-o", partial + string(filepath.Separator)}
	for _, pkg := range packages() {
		for _, name := range programsOf {
			if strings.HasSuffix(pkg, "/"+name) {
				args = append(args, pkg)
			}
		}
	}
	build := exec.CommandContext(ctx, "go", args...)
	build.Dir = source
	build.Env = append(os.Environ(), "GOWORK="+filepath.Join(source, "go.work"))
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", commit, err, out)
	}
	return os.Rename(partial, dir)
}

// Programs returns the directory of this tree's programs.
func Programs(t testing.TB) string {
	t.Helper()
	dir, err := programs()
	require.NoError(t, err)
	return dir
}

// UsePrograms lets the lives of the process that follow run the program of another directory, one of this tree.
func (p *Process) UsePrograms(dir string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.path = filepath.Join(dir, filepath.Base(p.path))
	p.args, p.newer = append(p.args, p.newer...), nil
}
