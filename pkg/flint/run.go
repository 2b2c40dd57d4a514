// SPDX-License-Identifier: Apache-2.0

package flint

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/redfishagent"
)

// state is what a run has learned so far; it lies in the checkpoint.
type state struct {
	// Recover is why the host needs an AUX power cycle. Cycled says that it got
	// its one, or may have.
	Recover string `json:"recover,omitempty"`
	Cycled  bool   `json:"cycled,omitempty"`
	// Found are the devices of the kinds that images were given for.
	Found []Device `json:"found,omitempty"`
	// Dir is the work directory on the host.
	Dir string `json:"dir,omitempty"`
	// Matched says that every device has its image.
	Matched bool          `json:"matched,omitempty"`
	Devices []deviceState `json:"devices,omitempty"`
	// Check compares the versions after the activation.
	Check *versionCheck `json:"check,omitempty"`
}

// deviceState is one device with its image.
type deviceState struct {
	Component string `json:"component"`
	Kind      string `json:"kind"`
	Path      string `json:"path"`
	PSID      string `json:"psid"`
	Previous  string `json:"previous"`
	Expected  string `json:"expected"`
	File      string `json:"file"`
	// Flash is how far the device is; Tries counts how often it was begun.
	// Error is why the last try failed.
	Flash flashState `json:"flash,omitempty"`
	Tries int        `json:"tries,omitempty"`
	Error string     `json:"error,omitempty"`
}

// flashState is how far a device is.
type flashState string

const (
	// flashNeeded: nothing was sent for the device, or provably nothing came of it.
	flashNeeded flashState = ""
	// flashNone: the device has the version already.
	flashNone flashState = "unneeded"
	// flashSent: the command may have been sent, and its outcome is not known.
	flashSent flashState = "sent"
	// flashDone: the image is written and waits for a reset.
	flashDone flashState = "done"
)

// run is the work on the images of one update.
type run struct {
	f *Flint
	u redfishagent.InBandUpdate
	t *agent.Task

	// mu guards the state while devices are flashed in parallel.
	mu    sync.Mutex
	state state
}

// Begin takes up the work on a group of images, or goes on with it.
func (f *Flint) Begin(u redfishagent.InBandUpdate) (redfishagent.InBandRun, error) {
	if len(u.Images) == 0 {
		return nil, agent.Fail(job.FailureInvalidArgument, phaseValidation, "no in-band images are given", nil)
	}
	if !u.Task.HasCredentials(node.EndpointHost) {
		return nil, agent.Fail(job.FailureInvalidArgument, phaseValidation,
			"in-band updates log in to the host operating system, and the node's host endpoint has no credentials", nil)
	}
	r := &run{f: f, u: u, t: u.Task}
	if _, err := u.State.Load(&r.state); err != nil {
		return nil, err
	}
	return r, nil
}

// HostReady waits until the host operating system has come up.
func (f *Flint) HostReady(ctx context.Context, t *agent.Task, progress func(text string)) error {
	h, err := f.connect(t)
	if err != nil {
		return err
	}
	defer h.close()
	return fail(phaseActivation, "wait for the host operating system", h.waitReady(ctx, t, progress))
}

// Stages are those before and those behind the activation.
func (r *run) Stages(suffix string) (before, after []agent.Stage) {
	reads := func(name, description string, work func(context.Context) error) agent.Stage {
		return agent.Stage{Name: name + suffix, Description: description, Resume: agent.Repeatable, Interruptible: true, Run: work}
	}
	before = []agent.Stage{
		reads("discover_host", "Waiting for the host operating system", r.hostReady),
		reads("discover_devices", "Looking for network devices on the host", r.discover),
		{
			Name: "discover_recover" + suffix, Description: "Recovering the host by an AUX power cycle",
			Resume: agent.Once, Prepare: r.prepareCycle, Run: r.cycle, Observe: r.observeCycle, Limit: cycleLimit,
			SwitchesPower: true,
		},
		reads("discover_host_again", "Waiting for the host operating system after its recovery", r.hostReadyAgain),
		reads("discover_devices_again", "Looking for network devices on the recovered host", r.discoverAgain),
		{
			Name: "flash_images" + suffix, Description: "Copying images to the host",
			Resume: agent.Repeatable, Interruptible: true, Run: r.stageImages,
			Attempts: hostAttempts, Pause: r.f.opts.Timing.ReadyInterval,
		},
		{
			Name: "flash" + suffix, Description: "Flashing network devices",
			Resume: agent.Once, Prepare: r.prepareFlash, Run: r.flash, Observe: r.observeFlash,
			Attempts: hostAttempts, Pause: r.f.opts.Timing.ReadyInterval, Limit: r.flashLimit(r.pending()),
		},
		{
			Name: "flash_clean" + suffix, Description: "Removing images from the host",
			// It is done also when the job was asked to stop meanwhile.
			Resume: agent.Resumable, Run: r.clean, Limit: r.f.opts.Timing.Clean,
		},
	}
	after = []agent.Stage{
		reads("host_ready", "Waiting for the host operating system", r.hostUp),
		reads("verify", "Verifying activated versions of network devices", r.verify),
	}
	return before, after
}

// cycleLimit is how long an AUX power cycle takes to be ordered at most; what comes
// behind it can be left.
const cycleLimit = 5 * time.Minute

// flashLimit is how long devices may take, which are flashed a few at a time. There
// is none before the devices are known.
func (r *run) flashLimit(todo []*deviceState) time.Duration {
	rounds := (len(todo) + flashParallel - 1) / flashParallel
	return time.Duration(rounds) * r.f.opts.Timing.Flash
}

// hostAttempts is how often a stage is tried while the host does not answer.
const hostAttempts = 3

// save hands the state to the next checkpoint.
func (r *run) save() error { return r.u.State.Set(r.state) }

// Applied reports whether any device was flashed.
func (r *run) Applied() bool {
	return slices.ContainsFunc(r.state.Devices, func(d deviceState) bool { return d.Flash == flashDone })
}

// kinds are the kinds of devices that images were given for.
func (r *run) kinds() []string {
	var kinds []string
	for _, i := range r.u.Images {
		if !slices.Contains(kinds, i.Device) {
			kinds = append(kinds, i.Device)
		}
	}
	return kinds
}

func (r *run) progress(text string) { r.t.Progress(0, text) }

// skipped is why nothing was flashed.
const skipped = "every network device has the version of its image already"

// details are what a result tells of the devices.
type details struct {
	Status string          `json:"status"`
	Force  bool            `json:"force_update"`
	List   []deviceDetails `json:"devices"`
}

type deviceDetails struct {
	Component string `json:"component"`
	Device    string `json:"device"`
	PSID      string `json:"psid"`
	Previous  string `json:"previous_version"`
	Expected  string `json:"expected_version"`
	File      string `json:"firmware_file"`
}

// Outcome tells how the images have ended.
func (r *run) Outcome() redfishagent.InBandOutcome {
	d := details{Status: "completed", Force: r.u.Force, List: []deviceDetails{}}
	flashed := 0
	for _, s := range r.state.Devices {
		if s.Flash == flashDone {
			flashed++
		}
		d.List = append(d.List, deviceDetails{s.Component, s.Path, s.PSID, s.Previous, s.Expected, s.File})
	}
	out := redfishagent.InBandOutcome{Message: fmt.Sprintf("%d of %d network devices flashed", flashed, len(d.List))}
	if r.state.Matched && flashed == 0 {
		out.Skipped, d.Status = skipped, "skipped"
	}
	out.Details = encode(d)
	if r.state.Check != nil {
		out.Check = encode(r.state.Check)
	}
	return out
}

func encode(v any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		return nil // only plain values are in there
	}
	return data
}
