// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bufio"
	"crypto/rand"
	"encoding/base32"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// exec runs one command line of a session.
func (s *Server) exec(c net.Conn, ch ssh.Channel, line string, left <-chan struct{}) {
	end := s.begin(line)
	defer end()
	f, faulty := s.commandFault(line)
	if !s.pause(f.Delay, left) {
		s.record(Entry{Command: line, Exit: -1})
		return
	}
	if faulty && f.Hang {
		select {
		case <-left:
		case <-s.stop:
		}
		s.record(Entry{Command: line, Exit: -1})
		return
	}
	if faulty && f.Cut && !f.Do {
		s.record(Entry{Command: line, Exit: -1})
		_ = c.Close()
		return
	}
	out, status := f.Output, f.Exit
	if !faulty || status == 0 && out == "" {
		out, status = s.shell(ch, line)
	}
	if faulty && f.Cut {
		s.record(Entry{Command: line, Exit: -1})
		_ = c.Close()
		return
	}
	s.record(Entry{Command: line, Exit: status})
	_, _ = io.WriteString(ch, out)
	_, _ = ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{uint32(status)}))
}

// pause waits, and reports false when the client has left meanwhile.
func (s *Server) pause(d time.Duration, left <-chan struct{}) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-left:
		return false
	case <-s.stop:
		return false
	}
}

const notFound = 127

var (
	sudoLine     = regexp.MustCompile(`^sudo -S (.*) 2>/dev/null$`)
	queryLine    = regexp.MustCompile(`^flint -d '([^']+)' --yes query$`)
	imageLine    = regexp.MustCompile(`^flint -i '([^']+)' query$`)
	burnLine     = regexp.MustCompile(`^flint -d '([^']+)' --yes -i '([^']+)' b$`)
	makeDirLine  = regexp.MustCompile(`^mktemp -d (/tmp/[A-Za-z0-9.-]+\.)XXXXXX$`)
	removeLine   = regexp.MustCompile(`^rm -rf -- '(/tmp/[^'/]+)'$`)
	testFileLine = regexp.MustCompile(`^test -f '([^']+)'$`)
)

// shell does what a shell would do with the lines that are known here.
func (s *Server) shell(stdin io.Reader, line string) (out string, status int) {
	if m := sudoLine.FindStringSubmatch(line); m != nil {
		if !s.sudo(stdin) {
			return "", 1
		}
		return s.asRoot(m[1])
	}
	if m := makeDirLine.FindStringSubmatch(line); m != nil {
		random := make([]byte, 5)
		_, _ = rand.Read(random)
		dir := m[1] + base32.StdEncoding.EncodeToString(random)[:6]
		if err := s.root.Mkdir(inside(dir), 0o700); err != nil {
			return "", 1
		}
		return dir + "\n", 0
	}
	if m := removeLine.FindStringSubmatch(line); m != nil {
		_ = s.root.RemoveAll(inside(m[1]))
		return "", 0
	}
	switch {
	case strings.Contains(line, "systemctl is-system-running"):
		return s.systemState()
	case line == "command -v mst && command -v flint":
		if s.noTools() {
			return "", 1
		}
		return "/usr/bin/mst\n/usr/bin/flint\n", 0
	case line == "pgrep -f 'flint .* b$'":
		return s.pgrep()
	case strings.HasPrefix(line, "test -f "):
		for part := range strings.SplitSeq(line, " && ") {
			m := testFileLine.FindStringSubmatch(part)
			if m == nil {
				return "", 2
			}
			if info, err := s.root.Stat(inside(m[1])); err != nil || !info.Mode().IsRegular() {
				return "", 1
			}
		}
		return "", 0
	default:
		return "", notFound
	}
}

// sudo reads one line of the input.
func (s *Server) sudo(stdin io.Reader) bool {
	given, err := bufio.NewReader(stdin).ReadString('\n')
	if err != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	want := s.opts.Password
	if s.faults.SudoPassword != "" {
		want = s.faults.SudoPassword
	}
	return strings.TrimSuffix(given, "\n") == want
}

func (s *Server) asRoot(line string) (string, int) {
	if s.noTools() {
		return "", 1
	}
	switch {
	case line == "mst start":
		s.mu.Lock()
		defer s.mu.Unlock()
		s.started = true
		return "Starting MST (Mellanox Software Tools) driver set\nLoading MST PCI module - Success\n", 0
	case line == "mst status -v":
		return s.status(), 0
	}
	if m := queryLine.FindStringSubmatch(line); m != nil {
		return s.query(m[1])
	}
	if m := imageLine.FindStringSubmatch(line); m != nil {
		psid, version, ok := s.image(m[1])
		if !ok {
			return "-E- Can not open file\n", 1
		}
		return fmt.Sprintf("Image type:            FS4\nFW Version:            %s\nPSID:                  %s\n", version, psid), 0
	}
	if m := burnLine.FindStringSubmatch(line); m != nil {
		return s.burn(m[1], m[2])
	}
	return "", 1
}

func (s *Server) noTools() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults.NoTools
}

func (s *Server) systemState() (string, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := "running"
	switch {
	case s.faults.SystemState != "":
		state = s.faults.SystemState
	case time.Since(s.up) < s.opts.Boot:
		state = "starting"
	}
	if state == "running" || state == "degraded" {
		return "", 0
	}
	return "system-state:" + state + "\n", 1
}

func (s *Server) pgrep() (string, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.faults.NoProcessList {
		return "", notFound
	}
	if slices.ContainsFunc(s.devices, func(n *nic) bool { return n.busy }) {
		return "4711\n", 0
	}
	return "", 1
}

// status is the table of mst, whose paths need the driver.
func (s *Server) status() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	b.WriteString("MST modules:\n------------\n    MST PCI module is not loaded\n    MST PCI configuration module loaded\nPCI devices:\n------------\n")
	b.WriteString("DEVICE_TYPE             MST                           PCI       RDMA            NET                                     NUMA\n")
	for i, n := range s.devices {
		if slices.Contains(s.faults.Hidden, n.Path) {
			continue
		}
		for f := range n.Functions + 1 {
			path := n.Path
			if f > 0 {
				path = fmt.Sprintf("%s.%d", n.Path, f)
			}
			if !s.started {
				path = "NA"
			}
			fmt.Fprintf(&b, "%-24s%-30s%02d:00.%d   mlx5_%-10d net-ib%-33d 0\n", n.Type+"(rev:0)", path, i+1, f, i, i)
		}
	}
	b.WriteString("\nInband devices:\n-------------------\n")
	return b.String()
}

func (s *Server) query(path string) (string, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.find(path)
	if n == nil || !s.started || slices.Contains(s.faults.Hidden, path) {
		return "-E- Cannot open Device: " + path + ". No such file or directory\n", 1
	}
	if n.written == "" {
		return fmt.Sprintf("Image type:            FS4\nFW Version:            %s\nPSID:                  %s\n", n.Version, n.PSID), 0
	}
	text := fmt.Sprintf("Image type:            FS4\nFW Version:            %s\n", n.written)
	if s.faults.ShowRunning {
		text += fmt.Sprintf("FW Version(Running):   %s\n", n.Version)
	}
	return text + fmt.Sprintf("PSID:                  %s\n", n.PSID), 0
}

func (s *Server) image(path string) (psid, version string, ok bool) {
	f, err := s.root.Open(inside(path))
	if err != nil {
		return "", "", false
	}
	defer f.Close()
	head := make([]byte, 512)
	n, err := io.ReadFull(f, head)
	if err != nil && n == 0 {
		return "", "", false
	}
	return readImage(head[:n])
}

// burn writes a device. It goes on when the client has left, as the real tool does.
func (s *Server) burn(path, file string) (string, int) {
	psid, version, ok := s.image(file)
	if !ok {
		return "-E- Failed to open the image\n", 1
	}
	n, refused := s.beginBurn(path, psid)
	if refused != "" {
		return refused, 1
	}
	s.pause(s.opts.Flash, nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	n.busy = false
	if left := s.faults.FlashFailures[path]; left != 0 {
		if left > 0 {
			s.faults.FlashFailures[path] = left - 1
		}
		return "-E- Burning FS4 image failed: Flash write failed\n", 1
	}
	n.written = version
	n.flashes++
	if slices.Contains(s.faults.FlashPending, path) {
		return "-E- The firmware image was already updated on flash, pending reset.\n", 1
	}
	return "Burning FS4 image: OK\nTo load new FW run mlxfwreset or reboot machine.\n", 0
}

func (s *Server) beginBurn(path, psid string) (*nic, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.find(path)
	switch {
	case n == nil || !s.started:
		return nil, "-E- Cannot open Device: " + path + "\n"
	case n.PSID != psid:
		return nil, "-E- PSID mismatch. The PSID on flash (" + n.PSID + ") differs from the PSID in the given image (" + psid + ").\n"
	case n.busy:
		return nil, "-E- Cannot get semaphore (63). The flash is probably being accessed by another process.\n"
	}
	n.busy = true
	return n, ""
}
