// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// readyPoll is the pause between two looks at a process that is starting.
const readyPoll = 20 * time.Millisecond

// Process is one program that can be killed, frozen and started again. Its methods are safe for concurrent use.
type Process struct {
	// Name is unique in the cluster, for example "compute-agent-2".
	Name string
	// Role is what replicas share, for example "compute-agent".
	Role string

	path string
	args []string
	// newer are arguments for the programs of this tree, which those of a release do not know.
	newer []string
	// always are variables of every life.
	always []string
	log    *Log
	ready  string

	mu  sync.Mutex
	env []string
	run *run
}

// run is one life of a process.
type run struct {
	cmd *exec.Cmd
	// done is closed when the process has been waited for; err is its end.
	done chan struct{}
	err  error
}

// Log returns everything the process has written, over all its lives.
func (p *Process) Log() *Log { return p.log }

// Setenv adds variables, as KEY=VALUE, to the lives that follow.
func (p *Process) Setenv(env ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.env = append([]string{}, env...)
}

// Start starts the process. It does nothing while the process runs.
func (p *Process) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run.alive() {
		return nil
	}
	cmd := exec.CommandContext(context.Background(), p.path, p.args...) // it ends by Kill or Stop
	cmd.Env = slices.Concat(os.Environ(), p.always, p.env)
	cmd.Stdout, cmd.Stderr = p.log, p.log
	// A test that dies must not leave its processes behind.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	r := &run{cmd: cmd, done: make(chan struct{})}
	go func() {
		r.err = cmd.Wait()
		close(r.done)
	}()
	p.run = r
	return nil
}

func (r *run) alive() bool {
	if r == nil {
		return false
	}
	select {
	case <-r.done:
		return false
	default:
		return true
	}
}

func (p *Process) current() *run {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run
}

// Alive reports whether the process runs, frozen or not.
func (p *Process) Alive() bool { return p.current().alive() }

// Frozen reports whether the process is stopped by SIGSTOP, by whomever.
func (p *Process) Frozen() bool {
	r := p.current()
	if !r.alive() {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.cmd.Process.Pid))
	if err != nil {
		return false
	}
	// The state follows the name, which is in brackets.
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "T")
}

// Kill ends the process with SIGKILL and waits until it is gone.
func (p *Process) Kill() {
	r := p.current()
	if !r.alive() {
		return
	}
	_ = r.cmd.Process.Kill() // it may have ended by itself
	<-r.done
}

// Pause freezes the process with SIGSTOP.
func (p *Process) Pause() error { return p.signal(syscall.SIGSTOP) }

// Resume lets a frozen process go on.
func (p *Process) Resume() error { return p.signal(syscall.SIGCONT) }

func (p *Process) signal(s os.Signal) error {
	r := p.current()
	if !r.alive() {
		return fmt.Errorf("%s does not run", p.Name)
	}
	if err := r.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %s to %s: %w", s, p.Name, err)
	}
	return nil
}

// Stop asks the process to end with SIGTERM. An exit code other than 0 is an error, and so is the end of ctx, upon
// which the process is killed.
func (p *Process) Stop(ctx context.Context) error {
	r := p.current()
	if !r.alive() {
		return fmt.Errorf("%s does not run", p.Name)
	}
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		p.Kill()
		return fmt.Errorf("stop %s: %w", p.Name, context.Cause(ctx))
	}
	if r.err != nil {
		return fmt.Errorf("stop %s: %w", p.Name, r.err)
	}
	return nil
}

// WaitExit returns once the process has ended by itself, with how it ended.
func (p *Process) WaitExit(ctx context.Context) error {
	r := p.current()
	if r == nil {
		return fmt.Errorf("%s was not started", p.Name)
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return fmt.Errorf("wait for the end of %s: %w", p.Name, context.Cause(ctx))
	}
}

// WaitReady returns once the process says that it can work.
func (p *Process) WaitReady(ctx context.Context) error {
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		r := p.current()
		last := p.probe(ctx)
		if last == nil {
			return nil
		}
		select {
		case <-r.done:
			return fmt.Errorf("%s ended before it was ready: %w\n%s", p.Name, errors.Join(r.err), p.log.Tail(20))
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w: %w\n%s", p.Name, context.Cause(ctx), last, p.log.Tail(20))
		case <-tick.C:
		}
	}
}

func (p *Process) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.ready, nil)
	if err != nil {
		return err
	}
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", res.Status, text)
	}
	return nil
}
