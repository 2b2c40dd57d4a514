// SPDX-License-Identifier: Apache-2.0

package flint

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
)

// textNothing says that nothing has to be looked after.
const textNothing = "nothing was flashed"

// versionCheck compares the versions of flashed devices.
type versionCheck struct {
	Status  string          `json:"status"`
	Devices []deviceVersion `json:"devices"`
}

type deviceVersion struct {
	Component string `json:"component"`
	Device    string `json:"device"`
	Expected  string `json:"expected_version"`
	Found     string `json:"system_version"`
	Status    string `json:"status"`
}

const (
	matched    = "matched"
	mismatched = "mismatched"
)

// errVersions says that a device shows another version after the activation.
var errVersions = errors.New("post-activation firmware version check failed")

// hostUp waits for the host behind the activation. It is never recovered by a
// power cycle any more.
func (r *run) hostUp(ctx context.Context) error {
	if !r.Applied() {
		return agent.Skip(textNothing)
	}
	return r.f.HostReady(ctx, r.t, r.progress)
}

// verify compares the versions, several times: devices may come late.
func (r *run) verify(ctx context.Context) error {
	if !r.Applied() {
		return agent.Skip(textNothing)
	}
	t := &r.f.opts.Timing
	for attempt := 1; ; attempt++ {
		err := r.compare(ctx)
		if err == nil || attempt >= t.VerifyAttempts || passes(err) || !errors.Is(err, errVersions) && !curable(err) {
			return r.verified(err)
		}
		r.progress(fmt.Sprintf("Verifying activated versions of network devices (attempt %d of %d: %v)", attempt, t.VerifyAttempts, err))
		if err := r.t.Sleep(ctx, t.VerifyInterval); err != nil {
			return err
		}
	}
}

func (r *run) verified(err error) error {
	if errors.Is(err, errVersions) {
		return agent.Fail(job.FailureVersionMismatch, phaseVerify, err.Error(), err)
	}
	return fail(phaseVerify, "read the versions of the network devices", err)
}

func (r *run) compare(ctx context.Context) error {
	h, err := r.f.connect(r.t)
	if err != nil {
		return err
	}
	defer h.close()
	if _, err := h.devices(ctx); err != nil {
		return err
	}
	check := &versionCheck{Status: matched}
	var wrong []string
	for _, d := range r.state.Devices {
		if d.Flash != flashDone {
			continue
		}
		now, err := h.query(ctx, d.Path)
		if err != nil {
			return err
		}
		// Where flint tells two versions, the one in force counts.
		found := now.Version
		if now.Running != "" {
			found = now.Running
		}
		v := deviceVersion{d.Component, d.Path, d.Expected, found, matched}
		if found != d.Expected {
			v.Status, check.Status = mismatched, mismatched
			wrong = append(wrong, fmt.Sprintf("%s: expected %s, found %s", d.Path, d.Expected, found))
		}
		check.Devices = append(check.Devices, v)
	}
	r.state.Check = check
	if err := r.save(); err != nil {
		return err
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%w: %s", errVersions, strings.Join(wrong, "; "))
	}
	return nil
}
