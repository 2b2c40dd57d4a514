// SPDX-License-Identifier: Apache-2.0

package sshtest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/stretchr/testify/require"
)

// Freeze stops the server and its processes for connections, or lets them go on.
// The machine of a frozen one still acknowledges packets, and nothing reads them.
func (s *OpenSSH) Freeze(on bool) {
	s.t.Helper()
	signal := syscall.SIGCONT
	if on {
		signal = syscall.SIGSTOP
		// Processes of connections outlive the server, and a frozen one for ever.
		s.t.Cleanup(func() { s.Freeze(false) })
	}
	for _, pid := range family(s.cmd.Process.Pid) {
		if err := syscall.Kill(pid, signal); err != nil {
			// It has ended meanwhile.
			require.ErrorIs(s.t, err, syscall.ESRCH)
		}
	}
}

// family is a process with all its descendants, parents first.
func family(pid int) []int {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		panic(err) // the pattern is constant
	}
	children := map[int][]int{}
	for _, name := range stats {
		if child, parent, ok := parentage(name); ok {
			children[parent] = append(children[parent], child)
		}
	}
	out := []int{pid}
	for i := 0; i < len(out); i++ {
		out = slices.Concat(out, children[out[i]])
	}
	return out
}

// parentage reads the process and its parent from a /proc/PID/stat, in which the
// name of the program, in parentheses, may hold anything.
func parentage(name string) (pid, parent int, ok bool) {
	data, err := os.ReadFile(name)
	if err != nil {
		return 0, 0, false // it has ended
	}
	text := string(data)
	end := strings.LastIndexByte(text, ')')
	if end < 0 {
		return 0, 0, false
	}
	var state string
	if _, err := fmt.Sscan(text[end+1:], &state, &parent); err != nil {
		return 0, 0, false
	}
	pid, err = strconv.Atoi(filepath.Base(filepath.Dir(name)))
	return pid, parent, err == nil
}
