// SPDX-License-Identifier: Apache-2.0

package redfishagent

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
)

// InBand updates the network devices of a tray from its host operating system.
// Whoever implements it logs in to the endpoint Task.Target().GetHost() with
// Task.Credentials(node.EndpointHost).
type InBand interface {
	// Begin returns the work on one group of images. It must not touch the host:
	// that is for the stages.
	Begin(update InBandUpdate) (InBandRun, error)
	// HostReady waits until the host operating system has come up after an
	// activation. It only reads.
	HostReady(ctx context.Context, t *agent.Task, progress func(text string)) error
}

// InBandUpdate is one group of images for the network devices of a tray.
type InBandUpdate struct {
	Task   *agent.Task
	Images []InBandImage
	// Force flashes devices that have the version already.
	Force bool
	// Counts are the devices that the node's profile promises, by kind (cx7, cx8,
	// bf3_nic). Only the kinds named are checked; nil checks none.
	Counts map[string]int
	// State keeps what the run has learned, across owners of the job.
	State InBandState
	// Power is the host's, through its BMC.
	Power HostPower
}

// InBandImage is one image for one kind of device.
type InBandImage struct {
	// Component is the kind as the request names it, Device one of cx7, cx8 and
	// bf3_nic. Name is the base name of the file.
	Component string
	Device    string
	Name      string
	// Open opens the file after it was checked against what was admitted.
	Open func(ctx context.Context) (*os.File, error)
}

// InBandState lies in the job's checkpoint.
type InBandState interface {
	// Load reads what this or an earlier owner has put there, and reports whether
	// there was anything.
	Load(v any) (bool, error)
	// Set hands a value to the next write of the checkpoint; Save writes it now.
	Set(v any) error
	Save(ctx context.Context, v any) error
}

// HostPower switches the host of a tray.
type HostPower interface {
	// EnsureOn switches the host on unless it reads On, and waits until it does.
	EnsureOn(ctx context.Context) error
	// AuxCycle takes the host down, cuts and restores the standby power of the
	// tray, and waits until the host reads On again. It must not be repeated
	// blindly, and never after a device was flashed.
	AuxCycle(ctx context.Context) error
}

// InBandRun is the work on one group.
type InBandRun interface {
	// Stages are those before and those behind the activation: discover and flash,
	// then verify. Their names are unique within a job when suffix is put behind.
	Stages(suffix string) (before, after []agent.Stage)
	// Applied reports whether any device was flashed.
	Applied() bool
	// Outcome tells how the group ended.
	Outcome() InBandOutcome
}

// InBandOutcome is how the images of a group ended.
type InBandOutcome struct {
	// Skipped is why nothing was flashed, empty when it was.
	Skipped string
	// Message is one line for people, Details a JSON object with the devices.
	Message string
	Details json.RawMessage
	// Check compares the versions after the activation, nil when it did not come
	// to it.
	Check json.RawMessage
}

// errNoInBand refuses in-band images on an agent without the means to flash them.
func errNoInBand() error {
	return agent.Fail(job.FailureAgentNotEquipped, phasePlanning,
		"in-band targets (CX7, CX8, BF3_NIC) cannot be flashed by this agent: it has no access to host operating systems", nil)
}

// beginInBand prepares the work on a group that is flashed from the host.
func (g *group) beginInBand() error {
	u := g.u
	if u.d.opts.InBand == nil {
		return errNoInBand()
	}
	if u.t.Target().GetHost().GetAddress() == "" {
		return agent.Fail(job.FailureEndpointMissing, phasePlanning,
			"in-band targets need a host endpoint with credentials, and the node has none", nil)
	}
	update := InBandUpdate{
		Task: u.t, Force: u.cmd.GetForce(), State: (*inBandState)(u), Power: hostPower{u},
	}
	if profile, ok := u.d.opts.Profiles[u.t.Target().GetInventoryProfile()]; ok {
		update.Counts = profile.FlintDevices
	}
	for _, item := range g.plan.Items {
		update.Images = append(update.Images, InBandImage{
			Component: item.Component, Device: item.Device, Name: item.BaseName(),
			Open: func(ctx context.Context) (*os.File, error) {
				img, err := u.open(ctx, item.Index)
				if err != nil {
					return nil, err
				}
				return img.File, nil
			},
		})
	}
	run, err := u.d.opts.InBand.Begin(update)
	if err != nil {
		return fail(phaseValidation, "", err)
	}
	g.inBand = run
	return nil
}

// hostPower is the power of an update's node.
type hostPower struct{ u *update }

// inBandState is the part of an update's state that an in-band run keeps.
type inBandState update

// Load reads the state.
func (s *inBandState) Load(v any) (bool, error) {
	if len(s.state.InBand) == 0 {
		return false, nil
	}
	if err := json.Unmarshal(s.state.InBand, v); err != nil {
		return false, fmt.Errorf("read the saved state of the in-band update: %w", err)
	}
	return true, nil
}

func (s *inBandState) put(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("save the state of the in-band update: %w", err)
	}
	s.state.InBand = data
	return nil
}

// Set hands the state to the next checkpoint.
func (s *inBandState) Set(v any) error {
	if err := s.put(v); err != nil {
		return err
	}
	return s.t.Set(s.state)
}

// Save writes the state now.
func (s *inBandState) Save(ctx context.Context, v any) error {
	if err := s.put(v); err != nil {
		return err
	}
	return s.t.Save(ctx, s.state)
}
