// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
)

// Log keeps what a process writes, in memory and in a file.
type Log struct {
	// Path is the file.
	Path string

	mu      sync.Mutex
	file    *os.File
	content bytes.Buffer
	grown   chan struct{}
}

func openLog(path string) (*Log, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	return &Log{Path: path, file: f, grown: make(chan struct{})}, nil
}

// Write implements io.Writer for the process.
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.content.Write(b)
	close(l.grown)
	l.grown = make(chan struct{})
	return l.file.Write(b)
}

func (l *Log) close() { _ = l.file.Close() }

// String returns everything written so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.content.String()
}

// Tail returns the last n lines.
func (l *Log) Tail(n int) string {
	lines := strings.Split(strings.TrimRight(l.String(), "\n"), "\n")
	return strings.Join(lines[max(len(lines)-n, 0):], "\n")
}

// Wait returns once text has been written n times, counted from the beginning.
func (l *Log) Wait(ctx context.Context, text string, n int) error {
	for {
		l.mu.Lock()
		count, grown := bytes.Count(l.content.Bytes(), []byte(text)), l.grown
		l.mu.Unlock()
		if count >= n {
			return nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return fmt.Errorf("wait for %q in %s: %w", text, l.Path, context.Cause(ctx))
		}
	}
}
