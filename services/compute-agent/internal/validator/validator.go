// SPDX-License-Identifier: Apache-2.0

package validator

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/credentials"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/secret"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// Validator runs validations.
type Validator struct {
	opts  Options
	slots chan struct{}
}

// New checks the options. Without a command every job is refused.
func New(opts Options) (*Validator, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Validator{opts: opts, slots: make(chan struct{}, opts.MaxRunning)}, nil
}

// end is how a validation has ended.
type end string

const (
	endPassed      end = "passed"
	endFailed      end = "failed"
	endTimeout     end = "timeout"
	endCancelled   end = "cancelled"
	endInterrupted end = "interrupted"
	// endBroken: the validator could not be run.
	endBroken end = "not_run"
)

// state is what a job has learned so far; it lies in the checkpoint.
type state struct {
	// Begun says that the validator may have been started.
	Begun      bool            `json:"begun,omitempty"`
	End        end             `json:"end,omitempty"`
	ExitStatus int             `json:"exit_status"`
	Report     json.RawMessage `json:"report,omitempty"`
	Output     string          `json:"output,omitempty"`
	Truncated  bool            `json:"truncated,omitempty"`
	Message    string          `json:"message,omitempty"`
	Seconds    float64         `json:"seconds,omitempty"`
	// Released says that the release command has succeeded; Leak is why it has not.
	Released bool   `json:"released,omitempty"`
	Leak     string `json:"leak,omitempty"`
}

// run is one validation of one node.
type run struct {
	v     *Validator
	t     *agent.Task
	op    *rackbusv1.SystemValidation
	state state
	slot  bool
	// Prepared for the commands.
	logDir      string
	values      map[string]string
	env         []string
	credentials secret.Value
	secrets     []secret.Value
}

// Validate is the handler of system validations.
func (v *Validator) Validate(ctx context.Context, t *agent.Task) (out agent.Outcome, err error) {
	r := &run{v: v, t: t, op: t.Command().GetSystemValidation()}
	defer r.leave()
	if len(v.opts.Command) == 0 {
		return agent.Outcome{}, agent.Fail(job.FailureValidatorMissing, "validation", "no validator is configured on this agent", nil)
	}
	if _, err := t.Load(&r.state); err != nil {
		return agent.Outcome{}, err
	}
	// A panic must not leave the node taken either.
	defer func() {
		if p := recover(); p != nil {
			r.lastRelease(ctx)
			panic(p)
		}
	}()
	err = t.RunStages(ctx, r.stages())
	if err != nil && !errors.Is(err, agent.ErrHandedOver) && !errors.Is(context.Cause(ctx), agent.ErrHandedOver) {
		r.lastRelease(ctx)
	}
	return agent.Outcome{Description: "Completed", ResultJSON: r.result(err)}, err
}

func (r *run) stages() []agent.Stage {
	return []agent.Stage{
		{
			Name: "prepare", Description: "Preparing the validation",
			Resume: agent.Repeatable, Interruptible: true, Run: r.prepare,
		}, {
			// It is not interruptible, but looks itself whether it is asked to stop.
			Name: "validate", Description: "Running the validator",
			Resume: agent.Once, Heeds: true, Run: r.validate, Observe: r.observe,
		}, {
			Name: "release", Description: "Releasing the node",
			Resume: agent.Resumable, Run: r.release, Limit: r.v.opts.ReleaseLimit,
		}, {
			// A validation that has ended before the request to stop came counts.
			Name: "result", Description: "Reporting the result",
			Resume: agent.Resumable, Heeds: true, Run: r.verdict, // it ends at once
		},
	}
}

// prepare waits for one of the agent's places.
func (r *run) prepare(ctx context.Context) error {
	if err := r.ready(); err != nil {
		return agent.Fail(job.FailureValidationFailed, "validation", "prepare the validation: "+err.Error(), err)
	}
	select {
	case r.v.slots <- struct{}{}:
		r.slot = true
		return nil
	default:
		r.t.Progress(0, "Waiting for other validations of this agent")
	}
	select {
	case r.v.slots <- struct{}{}:
		r.slot = true
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *run) leave() {
	if r.slot {
		r.slot = false
		<-r.v.slots
	}
	r.credentials.Wipe()
	for _, s := range r.secrets {
		s.Wipe()
	}
}

// ready reads what the commands need. It is repeated by whoever takes over.
func (r *run) ready() error {
	if r.values != nil {
		return nil
	}
	o, target := &r.v.opts, r.t.Target()
	r.logDir = filepath.Join(o.LogDir, r.t.ID().String())
	for _, dir := range []string{o.WorkDir, r.logDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	values := map[string]string{
		"job_id": r.t.ID().String(), "rack_id": target.GetRackId(), "node_id": target.GetNodeId(), "node_type": target.GetNodeType(),
		"bmc_address": target.GetBmc().GetAddress(), "bmc_port": port(target.GetBmc()),
		"host_address": target.GetHost().GetAddress(), "host_port": port(target.GetHost()),
		"log_dir": r.logDir, "work_dir": o.WorkDir, "config_override": r.op.GetConfigOverride(),
	}
	if err := r.openCredentials(target); err != nil {
		return err
	}
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "HOME=" + o.WorkDir}
	for _, name := range placeholders() {
		env = append(env, "RACKBUS_"+strings.ToUpper(name)+"="+values[name])
	}
	env = append(env, "RACKBUS_CREDENTIALS_FD="+strconv.Itoa(credentialsFD))
	if o.Environment != nil {
		more, err := o.Environment()
		if err != nil {
			return err
		}
		defer more.Wipe()
		lines, values, err := variables(more.Reveal())
		if err != nil {
			return err
		}
		env = append(env, lines...)
		r.secrets = append(r.secrets, values...)
	}
	r.values, r.env = values, env
	return nil
}

// port is the port of an endpoint, empty when the endpoint is missing.
func port(e *rackbusv1.DeviceEndpoint) string {
	if e.GetAddress() == "" {
		return ""
	}
	return strconv.Itoa(int(e.GetPort()))
}

// login is an endpoint as the commands read it.
type login struct {
	Address  string `json:"address"`
	Port     uint32 `json:"port"`
	Username string `json:"username"`
	Password string `json:"password"`
}

// openCredentials makes the document that the commands read from their inherited
// descriptor: {"bmc": {...}, "host": {...}}.
func (r *run) openCredentials(target *rackbusv1.NodeTarget) error {
	doc := map[string]login{}
	for kind, e := range map[node.EndpointKind]*rackbusv1.DeviceEndpoint{
		node.EndpointBMC: target.GetBmc(), node.EndpointHost: target.GetHost(),
	} {
		if e.GetAddress() == "" {
			continue
		}
		c, err := r.t.Credentials(kind)
		if errors.Is(err, credentials.ErrNone) && kind == node.EndpointHost {
			continue
		}
		if err != nil {
			return err
		}
		doc[strings.ToLower(string(kind))] = login{e.GetAddress(), e.GetPort(), c.User, c.Password.Reveal()}
		r.secrets = append(r.secrets, c.Password)
	}
	data, err := json.Marshal(doc) //nolint:gosec // to be read by the command, from a sealed file in memory
	if err != nil {
		return errors.New("credentials cannot be written")
	}
	r.credentials = secret.FromBytes(data)
	return nil
}

// variables reads NAME=value lines. Empty lines and those that begin with # are
// left out.
func variables(text string) (lines []string, values []secret.Value, err error) {
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok || name == "" || strings.ContainsAny(name, " \t\x00") || strings.ContainsRune(value, 0) {
			return nil, nil, fmt.Errorf("line %d of the environment is not NAME=value", n)
		}
		lines = append(lines, line)
		values = append(values, secret.New(value))
	}
	return lines, values, nil
}

// lockName is the file of a node's lock.
func (r *run) lockName() string {
	target := r.t.Target()
	sum := sha256.Sum256([]byte(target.GetRackId() + "\x00" + target.GetNodeId()))
	return hex.EncodeToString(sum[:16]) + ".lock"
}

// lockPause is how often a node whose lock is taken is looked at again.
const lockPause = 200 * time.Millisecond

// lock waits for the end of whatever an earlier validation of the node has left.
func (r *run) lock(ctx context.Context, limit time.Duration) (*os.File, error) {
	expired := time.Now().Add(limit)
	for {
		f, err := lockNode(filepath.Join(r.v.opts.WorkDir, ".locks"), r.lockName())
		if !errors.Is(err, errLocked) || time.Now().After(expired) {
			return f, err
		}
		timer := time.NewTimer(lockPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, context.Cause(ctx)
		}
	}
}

// CheckEnvironment reports what is wrong with an environment.
func CheckEnvironment(plain []byte) error {
	_, _, err := variables(string(plain))
	return err
}
