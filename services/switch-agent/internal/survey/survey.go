// SPDX-License-Identifier: Apache-2.0

// Package survey reads a switch for its diagnosis: what NVUE tells of the system,
// its image, firmware, cluster and actions, what the fabric controller tells, and
// what the BMC tells over Redfish where the node has one.
//
// A switch can be judged by its system and image alone, so only these are required:
// a BMC that does not answer, or a cluster that is off, must not keep a switch from
// being examined.
package survey

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/rackbus/rackbus/pkg/diagnostics"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nmxc"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
)

// Fabric connects to the controller of a switch's fabric.
type Fabric interface {
	Controller(ctx context.Context) (*nmxc.Client, error)
}

// Options say what is read beside NVUE.
type Options struct {
	// Fabric is the controller of the switch.
	Fabric Fabric
	// BootLimit bounds the command that tells one boot from another; 0 is the limit
	// of the SSH client.
	BootLimit time.Duration
}

// Collectors examine an opened switch.
func Collectors(sw *device.Switch, o Options) []diagnostics.Collector {
	s := &survey{sw: sw, options: o}
	all := []diagnostics.Collector{
		system{s},
		s.collector("image", true, s.image),
		s.collector("platform", false, s.documents(
			document{"nvue/platform.json", []string{"platform"}},
			document{"nvue/chassis_location.json", []string{"platform", "chassis-location"}},
		)),
		s.collector("switch_firmware", false, s.firmware),
		s.collector("services", false, s.documents(
			document{"nvue/api.json", []string{"system", "api"}},
			document{"nvue/gnmi_server.json", []string{"system", "gnmi-server"}},
		)),
		s.collector("actions", false, s.documents(document{"nvue/actions.json", []string{"action"}})),
		s.collector("cluster", false, s.cluster),
		s.collector("fabric", false, s.fabric),
	}
	if bmc, ok := sw.BMC(); ok {
		all = append(all, ofBMC(bmc)...)
	}
	return all
}

// collector is one function of the survey.
func (s *survey) collector(name string, required bool, collect func(context.Context, diagnostics.Sink) error) diagnostics.Collector {
	return diagnostics.NewCollector(name, required, func(ctx context.Context, into diagnostics.Sink) error {
		return collect(ctx, withoutOwn{into, s.sw})
	})
}

// withoutOwn is a sink that masks the secrets we log in with, wherever the switch or
// its controller repeats them.
type withoutOwn struct {
	diagnostics.Sink
	sw *device.Switch
}

// JSON adds a document.
func (w withoutOwn) JSON(name string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	masked, err := w.sw.NVUE.Masked(raw)
	if err != nil {
		return err
	}
	return w.Sink.JSON(name, masked)
}

// survey reads one switch.
type survey struct {
	sw      *device.Switch
	options Options
}

// api is the NVUE client, once its connections are protected.
func (s *survey) api(ctx context.Context) (*nvue.Client, error) {
	if err := s.sw.Initialize(ctx); err != nil {
		return nil, err
	}
	return s.sw.NVUE, nil
}

// document is a resource of NVUE and the file that takes it.
type document struct {
	file     string
	segments []string
}

// documents collects resources as they are. Those that the switch does not have are
// left out.
func (s *survey) documents(list ...document) func(context.Context, diagnostics.Sink) error {
	return func(ctx context.Context, into diagnostics.Sink) error {
		api, err := s.api(ctx)
		if err != nil {
			return err
		}
		found := false
		var failed []error
		for _, d := range list {
			raw, err := api.Survey(ctx, d.segments...)
			switch {
			case err == nil:
				found = true
				failed = append(failed, into.JSON(d.file, raw))
			case device.Passes(err):
				return err
			case !lacks(err):
				failed = append(failed, err)
			}
		}
		if err := errors.Join(failed...); err != nil || found {
			return err
		}
		return diagnostics.Skip("the switch has no such resource")
	}
}

// lacks reports that the switch does not have a resource, or cannot read it: not every
// version of NVUE lists its actions.
func lacks(err error) bool {
	var answer *nvue.Error
	return errors.Is(err, nvue.ErrNotFound) || errors.As(err, &answer) && answer.Status == http.StatusMethodNotAllowed
}

// system reads what the switch says of itself, and watches what must not change.
type system struct{ s *survey }

func (system) Name() string { return "system" }

func (system) Required() bool { return true }

func (c system) Collect(ctx context.Context, into diagnostics.Sink) error {
	api, err := c.s.api(ctx)
	if err != nil {
		return err
	}
	raw, err := api.Survey(ctx, "system")
	if err != nil {
		return err
	}
	return into.JSON("nvue/system.json", raw)
}

// Fingerprint has the boot of the operating system, and the image that runs and the
// one that runs next. A switch that does not let us see its boot over SSH is watched
// by its images alone.
func (c system) Fingerprint(ctx context.Context) (diagnostics.Fingerprint, error) {
	api, err := c.s.api(ctx)
	if err != nil {
		return nil, err
	}
	image, err := api.Image(ctx)
	if err != nil {
		return nil, err
	}
	out := diagnostics.Fingerprint{}
	for key, value := range map[string]string{
		"image": image.CurrentBuild, "partition": image.CurrentPartition, "next_image": image.NextBuild,
	} {
		if value != "" {
			out[key] = value
		}
	}
	boot, err := c.s.sw.BootID(ctx, c.s.sw.Login, c.s.options.BootLimit)
	switch {
	case err == nil && boot != "":
		out["boot_id"] = boot
	case err != nil && (ctx.Err() != nil || device.Passes(err)):
		return nil, err
	}
	return out, nil
}

// image collects the partitions and the files. What follows from them stands beside
// the switch's own document, since rules compare with fixed words only.
func (s *survey) image(ctx context.Context, into diagnostics.Sink) error {
	api, err := s.api(ctx)
	if err != nil {
		return err
	}
	raw, err := api.Survey(ctx, "system", "image")
	if err != nil {
		return err
	}
	now, err := api.Image(ctx)
	if err != nil {
		return err
	}
	_, unused := now.UnusedPartition()
	next, known := map[string]string{nvue.Partition1: now.Partition1Build, nvue.Partition2: now.Partition2Build}[now.NextPartition]
	if err := into.JSON("nvue/image.json", imageFile{
		Document: raw, CurrentPartition: now.CurrentPartition, NextPartition: now.NextPartition,
		CurrentBuild: now.CurrentBuild, NextBuild: now.NextBuild, UnusedBuild: unused,
		Known:      now.CurrentBuild != "",
		RebootDue:  now.NextPartition != "" && now.NextPartition != now.CurrentPartition,
		NextAbsent: known && next == "",
	}); err != nil {
		return err
	}
	files, err := api.Survey(ctx, "system", "image", "files")
	switch {
	case err == nil:
		return into.JSON("nvue/image_files.json", files)
	case errors.Is(err, nvue.ErrNotFound):
		return nil
	default:
		return err
	}
}

type imageFile struct {
	Document         json.RawMessage `json:"document"`
	CurrentPartition string          `json:"current_partition"`
	NextPartition    string          `json:"next_partition"`
	CurrentBuild     string          `json:"current_build"`
	NextBuild        string          `json:"next_build"`
	UnusedBuild      string          `json:"unused_build"`
	// Known says that the running image can be told.
	Known bool `json:"current_known"`
	// RebootDue says that another partition runs after the next reboot, NextAbsent
	// that there is no image in it.
	RebootDue  bool `json:"reboot_due"`
	NextAbsent bool `json:"next_absent"`
}

type firmwareFile struct {
	Components []componentFile `json:"components"`
}

type componentFile struct {
	Name     string          `json:"name"`
	Version  string          `json:"version"`
	Health   string          `json:"health"`
	Pending  string          `json:"pending"`
	Document json.RawMessage `json:"document"`
}

// firmware collects the components, with the version that waits for a power cycle.
func (s *survey) firmware(ctx context.Context, into diagnostics.Sink) error {
	api, err := s.api(ctx)
	if err != nil {
		return err
	}
	found, err := api.Firmware(ctx)
	if err != nil {
		return err
	}
	var out firmwareFile
	for _, name := range slices.Sorted(maps.Keys(found)) {
		c := found[name]
		out.Components = append(out.Components, componentFile{name, c.Version, c.Health, c.Pending, c.Raw})
	}
	return into.JSON("nvue/firmware.json", out)
}
