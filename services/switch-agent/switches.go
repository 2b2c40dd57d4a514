// SPDX-License-Identifier: Apache-2.0

package switchagent

import (
	"context"
	"errors"
	"maps"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/config"
	"github.com/rackbus/rackbus/pkg/diagnostics"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/seal"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/fabric"
	"github.com/rackbus/rackbus/services/switch-agent/internal/firmware"
	"github.com/rackbus/rackbus/services/switch-agent/internal/image"
	"github.com/rackbus/rackbus/services/switch-agent/internal/source"
	"github.com/rackbus/rackbus/services/switch-agent/internal/upload"
)

// Options configure the workflows of the agent. Device, Seals and FirmwareDir are
// required.
type Options struct {
	// Seals opens the credentials of switches that a job names beside its own node.
	Seals *seal.Opener
	// Device is how switches are opened.
	Device device.Options
	// FirmwareDir holds the images. Commands name files relative to it.
	FirmwareDir string
	// Artifacts gives the files of the firmware catalogue; without it, commands
	// that need some are refused.
	Artifacts source.Artifacts
	// MaxUploads bounds the files that are sent at a time.
	MaxUploads int
	// Timing are the waits of all workflows, scaled already.
	Timing config.SwitchTiming
	// ImageUpload bounds the upload of an image as a whole and without progress; the
	// latter bounds every upload.
	ImageUpload upload.Limits
	// GatewayID is our name towards the fabric controller.
	GatewayID string
	// Diagnostics tune the examination of switches. Its Store takes the bundles;
	// Collectors, Lost and Version are set here.
	Diagnostics diagnostics.Options
}

// Switches runs the workflows.
type Switches struct {
	opts     Options
	devices  *device.Opener
	images   *image.Updater
	firmware *firmware.Updater
	fabric   *fabric.Workflow
}

// defaultMaxUploads is how many files are sent at a time.
const defaultMaxUploads = 64

// New returns the workflows. They share one set of connections.
func New(opts Options) (*Switches, error) {
	if opts.Seals == nil {
		return nil, errors.New("switch agent: no opener for sealed credentials")
	}
	devices, err := device.NewOpener(opts.Device)
	if err != nil {
		return nil, err
	}
	if opts.MaxUploads <= 0 {
		opts.MaxUploads = defaultMaxUploads
	}
	files, uploads := source.New(opts.FirmwareDir, opts.Artifacts), upload.New(opts.MaxUploads)
	s := &Switches{
		opts: opts, devices: devices,
		images: image.New(image.Options{
			Devices: devices, Files: files, Uploads: uploads, Upload: opts.ImageUpload, Timing: imageTiming(opts.Timing),
		}),
		firmware: firmware.New(firmware.Options{
			Devices: devices, Files: files, Uploads: uploads,
			Limits: firmwareLimits(opts.Timing, opts.ImageUpload), Timing: firmwareTiming(opts.Timing),
		}),
	}
	s.fabric = fabric.New(fabric.Options{Open: s.openPeer, Timing: fabricTiming(opts.Timing)})
	return s, nil
}

// Close closes the idle connections to devices.
func (s *Switches) Close() { s.devices.Close() }

// Handlers are the jobs of switches.
func (s *Switches) Handlers() map[job.Type]agent.Handler {
	handlers := map[job.Type]agent.Handler{
		job.TypeSwitchSystemImageUpdate:        s.images.Update,
		job.TypeFirmwareUpdate:                 s.firmware.Update,
		job.TypeConfigureScaleUpFabricManager2: s.fabric.Reconcile,
		job.TypeSwitchSdnFactoryDefaultReset:   s.fabric.ResetSDN,
		job.TypeNodeDiagnostics:                s.diagnosis().Run,
	}
	maps.Copy(handlers, s.securityHandlers())
	return handlers
}

// Queries are the synchronous operations of switches.
func (s *Switches) Queries() map[string]agent.QueryHandler {
	queries := map[string]agent.QueryHandler{
		OpPowerGet:           s.query(s.powerGet),
		OpPowerSet:           s.query(s.powerSet),
		OpDeviceInfo:         s.query(deviceInfo),
		OpFirmwareInventory:  s.query(s.firmwareInventory),
		OpNVOSHello:          s.query(hello),
		OpListSwitchFirmware: s.query(listFirmware),
		OpListSwitchImages:   s.query(listImages),
		OpPushSwitchFirmware: s.query(s.pushFirmware),
		OpSPDMEvidence:       s.evidence(),
	}
	for op, run := range fabric.Answers(fabricTiming(s.opts.Timing)) {
		queries[op] = s.fabricQuery(run)
	}
	return queries
}

type queryFunc func(ctx context.Context, sw *device.Switch, req *rackbusv1.NodeRequest) (*rackbusv1.NodeReply, error)

// query opens the switch, runs the operation, and tells its error.
func (s *Switches) query(run queryFunc) agent.QueryHandler {
	return func(ctx context.Context, q *agent.Query) *rackbusv1.NodeReply {
		sw, err := s.devices.Open(q, q.Request.GetDomain(), q.Log)
		if err != nil {
			return device.Refuse(err)
		}
		defer sw.Close()
		reply, err := run(ctx, sw, q.Request)
		if err != nil {
			q.Log.Warn("query failed", "err", err)
			return device.Refuse(err)
		}
		return reply
	}
}
