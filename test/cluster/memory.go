// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Memory is what a process has in main memory, in bytes.
type Memory struct {
	// Resident is its size now, Peak its largest size since the start of the process or the last ForgetPeak.
	Resident, Peak int64
}

// Memory reads the size of the running process. It works on Linux only.
func (p *Process) Memory() (Memory, error) {
	r := p.current()
	if !r.alive() {
		return Memory{}, fmt.Errorf("%s does not run", p.Name)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.cmd.Process.Pid))
	if err != nil {
		return Memory{}, fmt.Errorf("read the size of %s: %w", p.Name, err)
	}
	var m Memory
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		field := map[string]*int64{"VmRSS": &m.Resident, "VmHWM": &m.Peak}[key]
		if field == nil {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return Memory{}, fmt.Errorf("read the size of %s: %w", p.Name, err)
		}
		*field = kib << 10
	}
	if m.Resident == 0 || m.Peak == 0 {
		return Memory{}, fmt.Errorf("read the size of %s: it is not told", p.Name)
	}
	return m, nil
}

// ForgetPeak makes Peak count from now on.
func (p *Process) ForgetPeak() error {
	r := p.current()
	if !r.alive() {
		return fmt.Errorf("%s does not run", p.Name)
	}
	// 5 resets the peak (proc_pid_clear_refs(5)).
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", r.cmd.Process.Pid), []byte("5"), 0o200); err != nil {
		return fmt.Errorf("reset the peak of %s: %w", p.Name, err)
	}
	return nil
}
