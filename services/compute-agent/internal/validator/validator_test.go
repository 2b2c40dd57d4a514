// SPDX-License-Identifier: Apache-2.0

package validator_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/redfishagent/agenttest"
	"github.com/rackbus/rackbus/pkg/seal"
	"github.com/rackbus/rackbus/pkg/secret"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/compute-agent/internal/validator"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script is a validator and its release. What it does is told by its first
// argument; it notes what it has seen in the work directory.
const script = `#!/bin/sh
note() { echo "$1 $$" >> "$RACKBUS_WORK_DIR/notes"; }
[ "$1" = hang ] && trap 'note stopped; exit 1' TERM
note "begin-$1"
case "$1" in
pass) echo '{"score": 7, "node": "'"$2"'"}' ;;
text) echo "all good" ;;
fail) echo "GPU 3 is missing, password $(sed 's/.*"password":"\([^"]*\)".*/\1/' <&3), token $TOKEN" >&2; exit 9 ;;
args) printf '%s|' "$@"; cat /proc/$$/cmdline | tr '\0' ' ' > "$RACKBUS_WORK_DIR/cmdline"; tr '\0' '\n' < /proc/$$/environ > "$RACKBUS_WORK_DIR/environ" ;;
credentials) cat <&3 > "$RACKBUS_WORK_DIR/credentials"; echo x >&3 2>/dev/null || echo refused ;;
flood) yes | head -c 3000000 ;;
hang) (trap "" TERM; sleep 300) & sleep 300 & wait ;;
escape) setsid sh -c 'sleep 0.7; echo "escaped $$" >> "$RACKBUS_WORK_DIR/notes"' & ;;
leave) sleep 300 & echo $! > "$RACKBUS_WORK_DIR/left" ;;
release) [ -f "$RACKBUS_WORK_DIR/stuck" ] && { echo "license server away" >&2; exit 1; } ;;
slow-release) sleep 300 ;;
esac
note "end-$1"
`

// bench is an agent with a validator.
type bench struct {
	*agenttest.Rig
	t       *testing.T
	dir     string
	program string
	node    *rackbusv1.NodeTarget
}

const password = "pl4nted-bmc"

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{Rig: agenttest.New(t, node.FamilyCompute), t: t, dir: t.TempDir()}
	b.program = filepath.Join(b.dir, "validate")
	require.NoError(t, os.WriteFile(b.program, []byte(script), 0o700))
	b.node = b.Target(agenttest.Device{
		RackID: "r1", NodeID: "tray-1", Type: "COMPUTE_GB200_NVIDIA", IP: "10.0.0.1", Port: 443, User: "root", Password: password,
		Host: &agenttest.Host{IP: "10.0.0.2", Port: 22, User: "ubuntu", Password: "pl4nted-host"},
	})
	return b
}

func (b *bench) options(mode string) validator.Options {
	return validator.Options{
		Command: []string{b.program, mode, "{node_id}"}, Release: []string{b.program, "release"},
		Override: []string{"--config-override", "{config_override}"},
		WorkDir:  b.dir, LogDir: filepath.Join(b.dir, "logs"),
		ReleaseRetry: 50 * time.Millisecond, KillGrace: time.Second, Poll: 10 * time.Millisecond,
		ReleaseLimit: 5 * time.Second, LastReleaseLimit: 500 * time.Millisecond,
	}
}

func (b *bench) with(o validator.Options) func(*agenttest.AgentOptions) {
	b.t.Helper()
	v, err := validator.New(o)
	require.NoError(b.t, err)
	return func(a *agenttest.AgentOptions) {
		a.Handlers = map[job.Type]agent.Handler{job.TypeSystemValidation: v.Validate}
	}
}

func (b *bench) admit(override string) job.ID {
	return b.Admit(b.node, nil, func(c *rackbusv1.JobCommand) {
		c.Type = string(job.TypeSystemValidation)
		c.Operation = &rackbusv1.JobCommand_SystemValidation{SystemValidation: &rackbusv1.SystemValidation{ConfigOverride: override}}
	})
}

func (b *bench) run(mode string, change ...func(*validator.Options)) agenttest.Job {
	b.t.Helper()
	o := b.options(mode)
	for _, c := range change {
		c(&o)
	}
	b.Start(b.with(o))
	return b.Await(b.admit(""))
}

func (b *bench) read(name string) string {
	data, err := os.ReadFile(filepath.Join(b.dir, name))
	if err != nil {
		return ""
	}
	return string(data)
}

// notes are what the script has noted, without the process numbers.
func (b *bench) notes() []string {
	var out []string
	for line := range strings.Lines(b.read("notes")) {
		out = append(out, strings.Fields(line)[0])
	}
	return out
}

func (b *bench) await(what string) {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return strings.Contains(b.read("notes"), what) }, agenttest.Patience, 2*time.Millisecond, what)
}

// requireGone fails while a process of the script lives.
func (b *bench) requireGone() {
	b.t.Helper()
	for line := range strings.Lines(b.read("notes")) {
		var name string
		var pid int
		_, err := fmt.Sscan(line, &name, &pid)
		require.NoError(b.t, err)
		require.Eventually(b.t, func() bool { return syscall.Kill(pid, 0) != nil }, agenttest.Patience, 2*time.Millisecond, line)
	}
}

func decode(t *testing.T, text string) map[string]any {
	t.Helper()
	var v map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &v), text)
	return v
}

func TestValidation(t *testing.T) {
	t.Parallel()
	t.Run("passes with a report", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		j := b.run("pass")
		require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
		r := decode(t, j.ResultJSON)
		require.Equal(t, "completed", r["status"])
		require.Equal(t, "passed", r["validation"])
		require.Equal(t, map[string]any{"score": 7.0, "node": "tray-1"}, r["report"])
		require.Equal(t, 0.0, r["exit_status"])
		require.Equal(t, true, r["released"])
		require.NotContains(t, r, "leak")
		require.Equal(t, []string{"begin-pass", "end-pass", "begin-release", "end-release"}, b.notes())
		logs := r["log_directory"].(string)
		require.FileExists(t, filepath.Join(logs, "validator.out"))
		info, err := os.Stat(logs)
		require.NoError(t, err)
		require.EqualValues(t, 0o700, info.Mode().Perm())
	})
	t.Run("passes with a text, without a release", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		j := b.run("text", func(o *validator.Options) { o.Release = nil })
		r := decode(t, j.ResultJSON)
		require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
		require.Equal(t, "all good\n", r["output"])
		require.NotContains(t, r, "released")
	})
	t.Run("fails", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		j := b.run("fail", func(o *validator.Options) {
			o.Environment = func() (secret.Value, error) { return secret.New("# x\nTOKEN=pl4nted-token\n"), nil }
		})
		require.Equal(t, job.StateFailed, j.State)
		require.Equal(t, job.FailureValidationFailed, j.Failure.FailureCode)
		require.Contains(t, j.Failure.Message, "exit status 9: GPU 3 is missing")
		require.Equal(t, true, decode(t, j.ResultJSON)["released"])
		all := j.ResultJSON + j.Failure.Message
		require.NotContains(t, all, "pl4nted", "secrets in the output are masked")
		require.Contains(t, j.Failure.Message, "token [redacted]")
	})
	t.Run("long output is cut", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		j := b.run("flood", func(o *validator.Options) { o.MaxOutput, o.MaxLog = 1000, 5000 })
		r := decode(t, j.ResultJSON)
		require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
		require.Equal(t, true, r["output_truncated"])
		require.Len(t, r["output"], 1000)
		info, err := os.Stat(filepath.Join(r["log_directory"].(string), "validator.out"))
		require.NoError(t, err)
		require.EqualValues(t, 5000, info.Size())
	})
	t.Run("what it leaves behind is killed", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		j := b.run("leave")
		require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
		var pid int
		_, err := fmt.Sscan(b.read("left"), &pid)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return gone(pid) }, agenttest.Patience, 2*time.Millisecond)
	})
	// A process that has left the group still has the node's lock: nothing is done
	// for the node before it has ended.
	t.Run("what escapes is waited for", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		j := b.run("escape")
		require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
		require.Equal(t, []string{"begin-escape", "end-escape", "escaped", "begin-release", "end-release"}, b.notes())
	})
	t.Run("time limit", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		j := b.run("hang", func(o *validator.Options) { o.Limit = 2 * time.Second })
		require.Equal(t, job.FailureValidationFailed, j.Failure.FailureCode)
		require.Contains(t, j.Failure.Message, "did not end within 2s")
		require.Equal(t, true, decode(t, j.ResultJSON)["released"])
		require.Contains(t, b.notes(), "stopped")
		b.requireGone()
	})
	t.Run("program is missing", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		j := b.run("pass", func(o *validator.Options) { o.Command = []string{"/no/where"} })
		require.Equal(t, job.FailureValidationFailed, j.Failure.FailureCode)
		require.Contains(t, j.Failure.Message, "no such file")
		require.Equal(t, "not_run", decode(t, j.ResultJSON)["validation"])
	})
	t.Run("none is configured", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		j := b.run("pass", func(o *validator.Options) { o.Command = nil })
		require.Equal(t, job.FailureValidatorMissing, j.Failure.FailureCode)
		require.Equal(t, job.CodeFailedPrecondition, j.Failure.Code)
	})
	t.Run("one after the other", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		o := b.options("pass")
		o.MaxRunning = 1
		b.Start(b.with(o))
		other := b.Target(agenttest.Device{RackID: "r1", NodeID: "tray-2", Type: "COMPUTE_GB200_NVIDIA", IP: "10.0.0.3", Port: 443, User: "u", Password: "p"})
		first := b.admit("")
		b.node = other
		second := b.admit("")
		require.Equal(t, job.StateCompleted, b.Await(first).State)
		require.Equal(t, job.StateCompleted, b.Await(second).State)
	})
}

func gone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

// Credentials reach the command by a descriptor that nobody can change, and are
// neither in its arguments nor in its environment.
func TestSecretsOfTheCommand(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	o := b.options("args")
	o.Environment = func() (secret.Value, error) { return secret.New("TOKEN=pl4nted-token"), nil }
	b.Start(b.with(o))
	j := b.Await(b.admit("--evil {node_id}"))
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Equal(t, "args|tray-1|--config-override|--evil {node_id}|", decode(t, j.ResultJSON)["output"], "an override is one argument, as it is")
	require.NotContains(t, b.read("cmdline"), "pl4nted")
	environ := b.read("environ")
	require.NotContains(t, environ, password)
	require.Contains(t, environ, "TOKEN=pl4nted-token")
	require.Contains(t, environ, "RACKBUS_BMC_ADDRESS=10.0.0.1")
	require.Contains(t, environ, "RACKBUS_CREDENTIALS_FD=3")

	c := newBench(t)
	j = c.run("credentials")
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Equal(t, "refused\n", decode(t, j.ResultJSON)["output"], "the file is sealed")
	require.JSONEq(t, `{"bmc":{"address":"10.0.0.1","port":443,"username":"root","password":"`+password+`"},
		"host":{"address":"10.0.0.2","port":22,"username":"ubuntu","password":"pl4nted-host"}}`, c.read("credentials"))
}

func TestEnvironmentFile(t *testing.T) {
	t.Parallel()
	seed, public, err := seal.GenerateFamilyKey()
	require.NoError(t, err)
	sealer, err := seal.NewSealer(seal.PublicKeys{node.FamilyCompute: {public}})
	require.NoError(t, err)
	session, err := sealer.NewSession(node.FamilyCompute)
	require.NoError(t, err)
	opener, err := seal.NewOpener([]secret.Value{seed}, seal.OpenerOptions{})
	require.NoError(t, err)
	text, err := seal.EncodeDocument(session, validator.EnvironmentKind, []byte("TOKEN=pl4nted\n"))
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "environment")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	plain, err := validator.EnvironmentFile(path, opener)()
	require.NoError(t, err)
	require.Equal(t, "TOKEN=pl4nted\n", plain.Reveal())

	require.NoError(t, os.WriteFile(path, []byte("TOKEN=pl4nted\n"), 0o600))
	_, err = validator.EnvironmentFile(path, opener)()
	require.ErrorContains(t, err, "not a sealed document")
	require.NotContains(t, err.Error(), "pl4nted")

	b := newBench(t)
	j := b.run("pass", func(o *validator.Options) { o.Environment = validator.EnvironmentFile(path, opener) })
	require.Equal(t, job.FailureValidationFailed, j.Failure.FailureCode)
	require.Empty(t, b.notes(), "it is not begun without its environment")
}

func TestCancelAndTerminate(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T, change ...func(*validator.Options)) (*bench, job.ID) {
		b := newBench(t)
		o := b.options("hang")
		for _, c := range change {
			c(&o)
		}
		b.Start(b.with(o))
		id := b.admit("")
		b.await("begin-hang")
		return b, id
	}
	t.Run("cancelled", func(t *testing.T) {
		t.Parallel()
		b, id := begin(t)
		b.Cancel(id, job.CancelGraceful)
		j := b.Await(id)
		require.Equal(t, job.StateCancelled, j.State, "%+v", j.Failure)
		require.Equal(t, true, decode(t, j.ResultJSON)["released"])
		require.Equal(t, []string{"begin-hang", "stopped", "begin-release", "end-release"}, b.notes())
		b.requireGone()
	})
	t.Run("terminated", func(t *testing.T) {
		t.Parallel()
		b, id := begin(t)
		b.Cancel(id, job.CancelTerminate)
		j := b.Await(id)
		require.Equal(t, job.StateTerminated, j.State, "%+v", j.Failure)
		r := decode(t, j.ResultJSON)
		require.Equal(t, true, r["released"])
		require.NotContains(t, b.notes(), "stopped", "it is killed at once")
		b.requireGone()
	})
	t.Run("terminated, and not released", func(t *testing.T) {
		t.Parallel()
		b, id := begin(t, func(o *validator.Options) { o.Release[1] = "slow-release" })
		b.Cancel(id, job.CancelTerminate)
		j := b.Await(id)
		require.Equal(t, job.StateTerminated, j.State, "%+v", j.Failure)
		r := decode(t, j.ResultJSON)
		require.Equal(t, false, r["released"])
		require.Contains(t, r["leak"], "the node may still be taken")
		b.requireGone()
	})
	t.Run("a release that fails holds the job until it succeeds", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		stuck := filepath.Join(b.dir, "stuck")
		require.NoError(t, os.WriteFile(stuck, nil, 0o600))
		b.Start(b.with(b.options("pass")))
		id := b.admit("")
		b.AwaitEvent(id, "a second try", func(e job.Event) bool {
			return strings.Contains(e.Description, "attempt 2") && strings.Contains(e.Description, "license server away")
		})
		require.NoError(t, os.Remove(stuck))
		j := b.Await(id)
		require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
		require.Equal(t, true, decode(t, j.ResultJSON)["released"])
	})
	t.Run("or is terminated", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		require.NoError(t, os.WriteFile(filepath.Join(b.dir, "stuck"), nil, 0o600))
		b.Start(b.with(b.options("pass")))
		id := b.admit("")
		b.AwaitEvent(id, "a second try", func(e job.Event) bool { return strings.Contains(e.Description, "attempt 2") })
		b.Cancel(id, job.CancelTerminate)
		j := b.Await(id)
		require.Equal(t, job.StateTerminated, j.State, "%+v", j.Failure)
		r := decode(t, j.ResultJSON)
		require.Equal(t, false, r["released"])
		require.Contains(t, r["leak"], "license server away")
		require.Equal(t, "passed", r["validation"])
	})
	t.Run("deadline of the job", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		b.Start(b.with(b.options("hang")))
		id := b.Admit(b.node, nil, func(c *rackbusv1.JobCommand) {
			c.Type, c.RunLimitSeconds = string(job.TypeSystemValidation), 3
			c.Operation = &rackbusv1.JobCommand_SystemValidation{SystemValidation: &rackbusv1.SystemValidation{}}
		})
		j := b.Await(id)
		require.Equal(t, job.StateTimedOut, j.State, "%+v", j.Failure)
		require.Equal(t, true, decode(t, j.ResultJSON)["released"])
		b.requireGone()
	})
}

// The agent dies during a validation: the validator dies with it, is not begun
// again, and the next agent releases the node.
func TestAgentDies(t *testing.T) {
	t.Parallel()
	for name, kill := range map[string]func(*agenttest.Agent){
		"killed":  func(a *agenttest.Agent) { a.Kill() },
		"drained": func(a *agenttest.Agent) { a.Stop() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			quick := func(o *agenttest.AgentOptions) { o.DrainTimeout = 100 * time.Millisecond }
			first := b.Start(b.with(b.options("hang")), quick, agenttest.Mortal)
			id := b.admit("")
			b.await("begin-hang")
			kill(first)
			b.Start(b.with(b.options("hang")))
			j := b.Await(id)
			require.Equal(t, job.StateFailed, j.State)
			require.Equal(t, job.FailureValidationInterrupted, j.Failure.FailureCode, "%+v", j.Failure)
			require.Equal(t, uint64(2), j.Epoch)
			r := decode(t, j.ResultJSON)
			require.Equal(t, "interrupted", r["validation"])
			require.Equal(t, true, r["released"])
			require.Equal(t, 1, strings.Count(b.read("notes"), "begin-hang"), "it is not begun again")
			require.Equal(t, 1, strings.Count(b.read("notes"), "begin-release"))
			b.requireGone()
		})
	}
	t.Run("before the validator was started", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		doomed := b.StartDoomed(agent.FailAfterIntent, 1, b.with(b.options("pass")))
		id := b.admit("")
		<-doomed.Dead()
		b.Start(b.with(b.options("pass")))
		j := b.Await(id)
		require.Equal(t, job.FailureValidationInterrupted, j.Failure.FailureCode, "%+v", j.Failure)
		require.Equal(t, []string{"begin-release", "end-release"}, b.notes())
	})
	t.Run("during the release", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		stuck := filepath.Join(b.dir, "stuck")
		require.NoError(t, os.WriteFile(stuck, nil, 0o600))
		first := b.Start(b.with(b.options("pass")), agenttest.Mortal)
		id := b.admit("")
		b.AwaitEvent(id, "a second try", func(e job.Event) bool { return strings.Contains(e.Description, "attempt 2") })
		first.Kill()
		require.NoError(t, os.Remove(stuck))
		b.Start(b.with(b.options("pass")))
		j := b.Await(id)
		require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
		require.Equal(t, 1, strings.Count(b.read("notes"), "begin-pass"))
	})
}
