// SPDX-License-Identifier: Apache-2.0

// Package program runs racksim and rackbus for the tools beside it, as "make build"
// has made them.
package program

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/rackbus/rackbus/proto/rackmanager"
)

// Waits for the programs.
const (
	readyPoll   = 100 * time.Millisecond
	readyLimit  = 30 * time.Second
	stopTimeout = 40 * time.Second
	// maxLine is the longest line of racksim, which prints a node set in many.
	maxLine = 16 << 20
)

// Program is a program that has not been started, or runs.
type Program struct {
	*exec.Cmd
	log *os.File
}

// New prepares a program of the directory bin, which keeps its log in dir.
func New(ctx context.Context, bin, dir, name string, args ...string) (*Program, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, err
	}
	// Ctrl-C reaches the tool, which stops its programs in order.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(bin, name), args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stderr = log
	return &Program{Cmd: cmd, log: log}, nil
}

// Log is the file with what the program says.
func (p *Program) Log() string { return p.log.Name() }

// Stop asks the program to end, and ends it if it does not.
func (p *Program) Stop() {
	defer p.log.Close()
	_ = p.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(stopTimeout, func() { _ = p.Process.Kill() })
	defer kill.Stop()
	_ = p.Wait()
}

// StartRack starts racksim and returns the nodes that it prints.
func (p *Program) StartRack() (*rackmanager.NodeSet, error) {
	stdout, err := p.StdoutPipe()
	if err != nil {
		return nil, errors.Join(err, p.log.Close())
	}
	if err := p.start(); err != nil {
		return nil, err
	}
	nodes, err := readNodes(stdout)
	if err != nil {
		p.Stop()
		return nil, fmt.Errorf("racksim: %w (log %s)", err, p.Log())
	}
	return nodes, nil
}

func (p *Program) start() error {
	if err := p.Start(); err != nil {
		return errors.Join(fmt.Errorf("start %s (make build makes it): %w", filepath.Base(p.Path), err), p.log.Close())
	}
	return nil
}

func readNodes(r io.Reader) (*rackmanager.NodeSet, error) {
	var doc strings.Builder
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for lines.Scan() && lines.Text() != "ready" {
		doc.WriteString(lines.Text() + "\n")
	}
	if lines.Text() != "ready" {
		return nil, errors.Join(errors.New("ended before it was ready"), lines.Err())
	}
	set := &rackmanager.NodeSet{}
	if err := protojson.Unmarshal([]byte(doc.String()), set); err != nil {
		return nil, fmt.Errorf("node set: %w", err)
	}
	return set, nil
}

// StartServer starts `rackbus serve` and waits until it is ready, as its metrics
// address says.
func (p *Program) StartServer(ctx context.Context, metrics string) error {
	p.Stdout = p.log
	if err := p.start(); err != nil {
		return err
	}
	if err := awaitReady(ctx, "http://"+metrics+"/readyz"); err != nil {
		p.Stop()
		return fmt.Errorf("rackbus serve: %w (log %s)", err, p.Log())
	}
	return nil
}

func awaitReady(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not ready within %s: %w", readyLimit, ctx.Err())
		case <-tick.C:
		}
	}
}

// FreeAddress is an address that nobody listens on.
func FreeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // closed at once
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
