// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
)

// BinEnv names a directory with ready programs, nats-server among them; nothing is built then.
const BinEnv = "RACKBUS_BIN"

// The programs, by the name of their binary.
const (
	programNATS       = "nats-server"
	programAPI        = "rackbus-api"
	programJobs       = "rackbus-jobs"
	programCompute    = "rackbus-compute-agent"
	programPowerShelf = "rackbus-powershelf-agent"
	programSwitch     = "rackbus-switch-agent"
)

// packages are what the programs are built from.
func packages() []string {
	return []string{
		"github.com/nats-io/nats-server/v2",
		"github.com/rackbus/rackbus/services/api/cmd/rackbus-api",
		"github.com/rackbus/rackbus/services/jobs/cmd/rackbus-jobs",
		"github.com/rackbus/rackbus/services/compute-agent/cmd/rackbus-compute-agent",
		"github.com/rackbus/rackbus/services/powershelf-agent/cmd/rackbus-powershelf-agent",
		"github.com/rackbus/rackbus/services/switch-agent/cmd/rackbus-switch-agent",
	}
}

// SourcesEnv names what the programs are made of. go test, which looks at no file outside of a module, keeps with a result
// the variables that were read for it: a result is repeated only while they are the same.
const SourcesEnv = "RACKBUS_SOURCES"

var race = flag.Bool("cluster.race", false, "build the programs with the race detector")

// programs returns the directory of the built programs. They are built once per test binary; those of other test
// binaries are reused when nothing has changed.
var programs = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv(BinEnv); dir != "" {
		return filepath.Abs(dir)
	}
	_ = os.Getenv(SourcesEnv)
	root, err := repository()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, "bin", "test")
	// Without -trimpath, as everything else that tests build: the packages compiled for one serve the others.
	args := []string{"build", "-buildvcs=false", "-ldflags=-s -w"}
	if *race {
		dir += "-race"
		args = append(args, "-race")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("build programs: %w", err)
	}
	unlock, err := lock(dir + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	build := exec.Command("go", append(append(args, "-o", dir+string(filepath.Separator)), packages()...)...)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build programs: %w\n%s", err, out)
	}
	return dir, nil
})

// lock keeps test binaries that run at the same time from building the same files.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock programs: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock programs: %w", err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// repository returns the folder of go.work.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find repository: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("find repository: no go.work above the test")
		}
		dir = parent
	}
}
