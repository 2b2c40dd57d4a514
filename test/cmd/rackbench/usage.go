// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// usage is what a process has used since its start.
type usage struct {
	CPU time.Duration
	// PeakRSS is the largest resident memory so far, in bytes.
	PeakRSS int64
}

// clockTick is the unit of times in /proc/PID/stat: USER_HZ is 100 on Linux.
const clockTick = 10 * time.Millisecond

// usageOf reads /proc, so it works on Linux only.
func usageOf(pid int) (usage, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return usage{}, err
	}
	// The fields after the program's name, which may hold spaces: utime and
	// stime are the 14th and 15th of all (proc_pid_stat(5)).
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return usage{}, fmt.Errorf("unreadable /proc/%d/stat", pid)
	}
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return usage{}, fmt.Errorf("unreadable /proc/%d/stat: %w", pid, err)
		}
		ticks += n
	}
	peak, err := procField(fmt.Sprintf("/proc/%d/status", pid), "VmHWM:")
	return usage{CPU: time.Duration(ticks) * clockTick, PeakRSS: peak}, err
}

// procField reads a size from a file of "Name: 123 kB" lines, in bytes.
func procField(file, name string) (int64, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s of %s: %w", name, file, err)
		}
		return kib << 10, nil
	}
	return 0, fmt.Errorf("no %s in %s", name, file)
}

// machine is where the numbers were taken.
type machine struct {
	Cores  int    `json:"cores"`
	CPU    string `json:"cpu"`
	Memory int64  `json:"memory_bytes"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
}

func thisMachine() machine {
	m := machine{Cores: runtime.NumCPU(), Go: runtime.Version(), CPU: "unknown", Kernel: "unknown"}
	// What cannot be read is left unknown: it is only a label.
	m.Memory, _ = procField("/proc/meminfo", "MemTotal:")
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
				m.CPU = strings.TrimSpace(value)
				break
			}
		}
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	return m
}

// loadAverage is the load of the last minute, 0 where it cannot be read.
func loadAverage() float64 {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(data), " ")
	load, _ := strconv.ParseFloat(first, 64)
	return load
}
