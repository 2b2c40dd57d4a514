// SPDX-License-Identifier: Apache-2.0

package validator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Descriptors that a command inherits behind the standard ones.
const (
	credentialsFD = 3
	lockFD        = 4
)

// guardLine is the leader of a command's process group. It waits for the end of a
// pipe whose other end only the agent has, and then kills the group: so a
// validator does not outlive an agent that was killed.
const guardLine = `trap "" TERM INT HUP; read -r _ <&3; kill -KILL 0`

// command is a program to run in a process group of its own.
type command struct {
	args        []string
	env         []string
	dir         string
	credentials []byte
	lock        *os.File
	stdout      io.Writer
	stderr      io.Writer
	grace       time.Duration
}

// errKilled says that a command was ended because its context was.
var errKilled = errors.New("the command was killed")

// run runs a command to its end, and ends with ctx. Whatever the command has left
// behind in its group is killed. With gentle, the group is asked to stop before
// that when ctx ends.
func (c *command) run(ctx context.Context, gentle func() bool) (status int, err error) {
	if err := ctx.Err(); err != nil {
		return -1, context.Cause(ctx)
	}
	guard, release, err := c.startGuard()
	if err != nil {
		return -1, fmt.Errorf("start the guard of the command: %w", err)
	}
	defer release()
	secrets, err := sealedFile(c.credentials)
	if err != nil {
		return -1, fmt.Errorf("hand over the credentials: %w", err)
	}
	defer secrets.Close()
	cmd := exec.Command(c.args[0], c.args[1:]...) //nolint:gosec,noctx // what is configured; the group is killed here
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = c.dir, c.env, c.stdout, c.stderr
	cmd.ExtraFiles = []*os.File{secrets, c.lock}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: guard.Process.Pid}
	// A process that the command has left behind may keep its output open.
	cmd.WaitDelay = c.grace
	if err := cmd.Start(); err != nil {
		return -1, fmt.Errorf("start the command: %w", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = cmd.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
		if gentle() {
			signal(guard, syscall.SIGTERM)
			timer := time.NewTimer(c.grace)
			defer timer.Stop()
			select {
			case <-done:
				return -1, fmt.Errorf("%w: %w", errKilled, context.Cause(ctx))
			case <-timer.C:
			}
		}
		signal(guard, syscall.SIGKILL)
		<-done
		return -1, fmt.Errorf("%w: %w", errKilled, context.Cause(ctx))
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		return -1, fmt.Errorf("run the command: %w", err)
	}
	return cmd.ProcessState.ExitCode(), nil
}

// startGuard starts the leader of the group; release kills the whole group.
func (c *command) startGuard() (guard *exec.Cmd, release func(), err error) {
	end, held, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	guard = exec.Command("/bin/sh", "-c", guardLine) //nolint:noctx // ended by release
	guard.Dir = "/"
	guard.Env = []string{}
	guard.ExtraFiles = []*os.File{end, c.lock}
	guard.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = guard.Start()
	_ = end.Close()
	if err != nil {
		_ = held.Close()
		return nil, nil, err
	}
	return guard, func() {
		signal(guard, syscall.SIGKILL)
		_ = guard.Wait()
		_ = held.Close()
	}, nil
}

// signal reaches the whole group. Its leader is not waited for before, so the
// number is still that of the group.
func signal(guard *exec.Cmd, s syscall.Signal) { _ = syscall.Kill(-guard.Process.Pid, s) }

// sealedFile is a file in memory that nobody can change any more.
func sealedFile(content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("rackbus-credentials", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "credentials")
	if _, err := f.Write(content); err != nil {
		_ = f.Close()
		return nil, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		_ = f.Close()
		return nil, err
	}
	seals := unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// errLocked says that a process of an earlier validation is still there.
var errLocked = errors.New("a process of an earlier validation of the node is still running")

// lockNode takes the lock of a node. The descriptor is inherited by everything
// that runs for the node, so the lock is free only once all of it has ended.
func lockNode(dir, name string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("lock the node: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the node: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errLocked
		}
		return nil, fmt.Errorf("lock the node: %w", err)
	}
	return f, nil
}
