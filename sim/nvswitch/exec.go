// SPDX-License-Identifier: Apache-2.0

package nvswitch

import (
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/rackbus/rackbus/sim/reqlog"
)

const (
	exitUnanswered = -1
	exitNotFound   = 127
)

// output is what a command line leaves.
type output struct {
	stdout, stderr string
	status         int
}

func fails(text string) output { return output{stderr: text + "\n", status: 1} }

// exec runs one command line.
func (n *session) exec(line string, left <-chan struct{}) {
	s := n.sw
	o := s.begin(reqlog.Entry{Protocol: reqlog.SSH, Method: "EXEC", Path: line, ReadOnly: readOnly(line)})
	s.lock()
	rule, faulty := s.takeCommand(line)
	expired := s.expired[n.user]
	s.mu.Unlock()
	if !s.pause(wait(rule.Delay), left) {
		o.end(exitUnanswered, false)
		return
	}
	if faulty && rule.Hang {
		select {
		case <-left:
		case <-s.ctx.Done():
		}
		o.end(exitUnanswered, false)
		return
	}
	var out output
	switch {
	case expired:
		out = fails("Your password has expired and this is no terminal to change it on.")
	case faulty && !rule.Execute && (rule.Answer || rule.Cut || rule.NoExitStatus):
	default:
		out = s.run(line)
	}
	if faulty && rule.Answer {
		out = output{stdout: rule.Stdout, stderr: rule.Stderr, status: rule.Exit}
	}
	o.answering()
	switch {
	case faulty && rule.Cut:
		o.end(exitUnanswered, false)
		_ = n.conn.Close()
		return
	case faulty && rule.NoExitStatus:
		o.end(exitUnanswered, false)
		return
	}
	_, _ = io.WriteString(n.channel, out.stdout)
	_, err := io.WriteString(n.channel.Stderr(), out.stderr)
	n.exit(out.status)
	o.end(out.status, err == nil)
	s.Reconcile()
}

// listLine is the form in which the newest files of a directory that may not exist are listed.
var listLine = regexp.MustCompile(`^if \[ -d (.+?) \]; then ls -t (.+?); fi$`)

// run does what a shell would do with the lines that are known here.
func (s *Switch) run(line string) output {
	if out, known := s.digestOfBeginning(line); known {
		return out
	}
	if m := listLine.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
		dir := split(m[1])
		if len(dir) != 1 {
			return output{status: 2}
		}
		if info, err := s.root.Stat(inside(dir[0])); err != nil || !info.IsDir() {
			return output{}
		}
		line = "ls -t " + m[2]
	}
	var all output
	for _, words := range commands(line) {
		one := s.command(words)
		all.stdout, all.stderr, all.status = all.stdout+one.stdout, all.stderr+one.stderr, one.status
		if one.status != 0 {
			break
		}
	}
	return all
}

// commands cuts a line at && into commands of words.
func commands(line string) [][]string {
	out := [][]string{nil}
	for _, word := range split(line) {
		if word == "&&" {
			out = append(out, nil)
			continue
		}
		out[len(out)-1] = append(out[len(out)-1], word)
	}
	return out
}

// split makes words of a line; single and double quotes and backslashes hold words together.
func split(line string) []string {
	var out []string
	var word strings.Builder
	inside, quote := false, rune(0)
	escaped := false
	for _, r := range line {
		switch {
		case escaped:
			word.WriteRune(r)
			escaped = false
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\\':
			escaped, inside = true, true
		case r == '\'' || r == '"':
			quote, inside = r, true
		case r == ' ' || r == '\t':
			if inside {
				out = append(out, word.String())
				word.Reset()
			}
			inside = false
		default:
			word.WriteRune(r)
			inside = true
		}
	}
	if inside {
		out = append(out, word.String())
	}
	return out
}

// readOnly reports whether a line changes nothing.
func readOnly(line string) bool {
	if listLine.MatchString(strings.TrimSpace(line)) {
		return true
	}
	for _, words := range commands(line) {
		switch {
		case len(words) == 0:
		case words[0] == "nv" && len(words) > 1 && words[1] == "show":
		case words[0] == "nv", words[0] == "install", words[0] == "chmod", words[0] == "mkdir", words[0] == "rm",
			words[0] == "rmdir", words[0] == "mv":
			return false
		}
	}
	return true
}

// command runs one command.
func (s *Switch) command(words []string) output {
	if len(words) == 0 {
		return output{}
	}
	flags, operands := arguments(words[1:])
	switch words[0] {
	case "nv":
		return s.nv(words[1:])
	case "true", ":":
		return output{}
	case "echo":
		return output{stdout: strings.Join(words[1:], " ") + "\n"}
	case "test":
		return s.test(flags, operands)
	case "install":
		return s.install(flags, operands)
	case "chmod":
		return s.chmod(operands)
	case "mkdir":
		return s.each(operands, func(name string) error { return s.root.MkdirAll(name, 0o755) })
	case "rm":
		return s.each(operands, func(name string) error {
			if strings.Contains(flags, "r") {
				return s.root.RemoveAll(name)
			}
			if err := s.root.Remove(name); err != nil && !strings.Contains(flags, "f") {
				return err
			}
			return nil
		})
	case "rmdir":
		return s.each(operands, s.root.Remove)
	case "mv":
		if len(operands) != 2 {
			return output{status: 2}
		}
		return s.each(operands[:1], func(name string) error { return s.root.Rename(name, inside(operands[1])) })
	case "ls":
		return s.ls(flags, operands)
	case "cat":
		return s.cat(operands)
	case "sha256sum":
		return s.sha256sum(operands)
	default:
		return output{stderr: "bash: " + words[0] + ": command not found\n", status: exitNotFound}
	}
}

// arguments tells flags from operands; the value of -m stays an operand.
func arguments(words []string) (flags string, operands []string) {
	for i, word := range words {
		switch {
		case word == "--":
			return flags, append(operands, words[i+1:]...)
		case strings.HasPrefix(word, "-") && len(word) > 1:
			flags += word[1:]
		default:
			operands = append(operands, word)
		}
	}
	return flags, operands
}

func (s *Switch) each(names []string, do func(string) error) output {
	for _, name := range names {
		if err := do(inside(name)); err != nil {
			return fails(name + ": " + reason(err))
		}
	}
	return output{}
}

// reason is an error without the simulator's own paths.
func reason(err error) string {
	switch {
	case os.IsNotExist(err):
		return "No such file or directory"
	case os.IsPermission(err):
		return "Permission denied"
	default:
		return "Operation failed"
	}
}

func (s *Switch) test(flags string, operands []string) output {
	if len(operands) != 1 {
		return output{status: 2}
	}
	info, err := s.root.Stat(inside(operands[0]))
	if err != nil || flags == "f" && !info.Mode().IsRegular() || flags == "d" && !info.IsDir() {
		return output{status: 1}
	}
	return output{}
}

// install is "install -d -m MODE DIR".
func (s *Switch) install(flags string, operands []string) output {
	if !strings.Contains(flags, "d") || !strings.Contains(flags, "m") || len(operands) != 2 {
		return output{stderr: "install: only directories\n", status: 1}
	}
	mode, err := strconv.ParseUint(operands[0], 8, 12)
	if err != nil {
		return output{stderr: "install: invalid mode\n", status: 1}
	}
	return s.each(operands[1:], func(name string) error {
		if err := s.root.MkdirAll(name, 0o755); err != nil {
			return err
		}
		return s.root.Chmod(name, fs.FileMode(mode))
	})
}

func (s *Switch) chmod(operands []string) output {
	if len(operands) < 2 {
		return output{status: 1}
	}
	mode, err := strconv.ParseUint(operands[0], 8, 12)
	if err != nil {
		return output{stderr: "chmod: invalid mode\n", status: 1}
	}
	return s.each(operands[1:], func(name string) error { return s.root.Chmod(name, fs.FileMode(mode)) })
}

func (s *Switch) ls(flags string, operands []string) output {
	if len(operands) != 1 {
		return output{status: 2}
	}
	names, err := s.latest(operands[0])
	if err != nil {
		return output{stderr: "ls: cannot access '" + operands[0] + "': " + reason(err) + "\n", status: 2}
	}
	if !strings.Contains(flags, "t") {
		names = s.list(operands[0])
	}
	var out strings.Builder
	for _, name := range names {
		out.WriteString(name + "\n")
	}
	return output{stdout: out.String()}
}

func (s *Switch) cat(operands []string) output {
	var out strings.Builder
	for _, name := range operands {
		raw, err := s.root.ReadFile(inside(name))
		if err != nil {
			return fails("cat: " + name + ": " + reason(err))
		}
		out.Write(raw)
	}
	return output{stdout: out.String()}
}

func (s *Switch) sha256sum(operands []string) output {
	var out strings.Builder
	for _, name := range operands {
		_, sum, err := s.digest(path.Clean(name))
		if err != nil {
			return fails("sha256sum: " + name + ": No such file or directory")
		}
		out.WriteString(sum + "  " + name + "\n")
	}
	return output{stdout: out.String()}
}
