// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/services/api/internal/firmwarefile"
)

// minSwitchFile is the least size of a file that is copied to a switch.
const minSwitchFile = 1024

// switchFileName matches names that a file may have on a switch.
var switchFileName = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]*$`)

// switchComponent is the component of a type as NVUE names it, false for none.
func switchComponent(t rackmanager.SwitchFirmwareComponentType) (string, bool) {
	switch t {
	case rackmanager.SwitchFirmwareComponentType_SWITCH_FIRMWARE_COMPONENT_TYPE_BMC,
		rackmanager.SwitchFirmwareComponentType_SWITCH_FIRMWARE_COMPONENT_TYPE_FPGA,
		rackmanager.SwitchFirmwareComponentType_SWITCH_FIRMWARE_COMPONENT_TYPE_EROT,
		rackmanager.SwitchFirmwareComponentType_SWITCH_FIRMWARE_COMPONENT_TYPE_CPLD,
		rackmanager.SwitchFirmwareComponentType_SWITCH_FIRMWARE_COMPONENT_TYPE_BIOS,
		rackmanager.SwitchFirmwareComponentType_SWITCH_FIRMWARE_COMPONENT_TYPE_TRANSCEIVER:
		return strings.TrimPrefix(t.String(), "SWITCH_FIRMWARE_COMPONENT_TYPE_"), true
	default:
		return "", false
	}
}

func badComponent(t rackmanager.SwitchFirmwareComponentType) string {
	return fmt.Sprintf("component_type %d is not BMC, FPGA, EROT, CPLD, BIOS or TRANSCEIVER", int32(t))
}

// ListSwitchFirmware reads one component's firmware of a registered switch.
func (m *rackManager) ListSwitchFirmware(ctx context.Context, req *rackmanager.ListSwitchFirmwareRequest,
) (*rackmanager.ListSwitchFirmwareResponse, error) {
	refuse := func(message string) (*rackmanager.ListSwitchFirmwareResponse, error) {
		return &rackmanager.ListSwitchFirmwareResponse{Status: statusOf(false), ErrorMessage: message}, nil
	}
	target, refusal, err := m.findSwitch(ctx, node.Ref{RackID: req.GetRackId(), NodeID: req.GetNodeId()})
	if err != nil {
		return nil, err
	}
	if refusal != "" {
		return refuse(refusal)
	}
	component, ok := switchComponent(req.GetComponentType())
	if !ok {
		return refuse(badComponent(req.GetComponentType()))
	}
	result, err := m.askSwitch(ctx, m.opts.Timing.SwitchReadLimit, query{
		op: opListSwitchFirmware, target: target, fill: func(r *rackbusv1.NodeRequest) {
			r.SwitchOperation = &rackbusv1.NodeRequest_SwitchFirmware{SwitchFirmware: &rackbusv1.SwitchFirmwareRequest{Component: component}}
		},
	}).result()
	if err != nil {
		return refuse(err.Error())
	}
	return &rackmanager.ListSwitchFirmwareResponse{Status: statusOf(true), ResultJson: result}, nil
}

// ListSwitchSystemImages reads which images lie on a registered switch.
func (m *rackManager) ListSwitchSystemImages(ctx context.Context, req *rackmanager.ListSwitchSystemImagesRequest,
) (*rackmanager.ListSwitchSystemImagesResponse, error) {
	refuse := func(message string) (*rackmanager.ListSwitchSystemImagesResponse, error) {
		return &rackmanager.ListSwitchSystemImagesResponse{Status: statusOf(false), ErrorMessage: message}, nil
	}
	target, refusal, err := m.findSwitch(ctx, node.Ref{RackID: req.GetRackId(), NodeID: req.GetNodeId()})
	if err != nil {
		return nil, err
	}
	if refusal != "" {
		return refuse(refusal)
	}
	result, err := m.askSwitch(ctx, m.opts.Timing.SwitchReadLimit, query{op: opListSwitchImages, target: target}).result()
	if err != nil {
		return refuse(err.Error())
	}
	return &rackmanager.ListSwitchSystemImagesResponse{Status: statusOf(true), ImagesJson: result}, nil
}

// PushSwitchFirmware copies a firmware file to a registered switch, which nobody else
// changes meanwhile.
func (m *rackManager) PushSwitchFirmware(ctx context.Context, req *rackmanager.PushSwitchFirmwareRequest,
) (*rackmanager.PushSwitchFirmwareResponse, error) {
	refuse := func(message string) (*rackmanager.PushSwitchFirmwareResponse, error) {
		return &rackmanager.PushSwitchFirmwareResponse{Status: statusOf(false), ErrorMessage: message}, nil
	}
	target, refusal, err := m.findSwitch(ctx, node.Ref{RackID: req.GetRackId(), NodeID: req.GetNodeId()})
	if err != nil {
		return nil, err
	}
	if refusal != "" {
		return refuse(refusal)
	}
	component, ok := switchComponent(req.GetComponentType())
	if !ok {
		return refuse(badComponent(req.GetComponentType()))
	}
	if !switchFileName.MatchString(req.GetFilename()) {
		return refuse(badFileName("filename", req.GetFilename()))
	}
	file, refusal, err := m.switchFile(ctx, req.GetLocalFilePath())
	if err != nil {
		return nil, err
	}
	if refusal != "" {
		return refuse(refusal)
	}
	result, err := m.changeSwitch(ctx, "firmware push", m.opts.Timing.PushLimit, query{
		op: opPushSwitchFirmware, target: target, fill: func(r *rackbusv1.NodeRequest) {
			r.SwitchOperation = &rackbusv1.NodeRequest_SwitchFirmware{SwitchFirmware: &rackbusv1.SwitchFirmwareRequest{
				Component: component, Filename: req.GetFilename(), File: file.Path, SizeBytes: file.Size, Sha256: file.SHA256[:],
			}}
		},
	}).result()
	if err != nil {
		return refuse(err.Error())
	}
	return &rackmanager.PushSwitchFirmwareResponse{Status: statusOf(true), ResultJson: result}, nil
}

func badFileName(field, name string) string {
	return fmt.Sprintf("%s %q must consist of letters, digits, dots, hyphens and underscores and not begin with a dot", field, name)
}

// switchFile finds a file for a switch; refusal says why it cannot be used.
func (s *Server) switchFile(ctx context.Context, path string) (file firmwarefile.File, refusal string, err error) {
	if path == "" {
		return file, "local_file_path is required", nil
	}
	timer := s.metrics.hashTimer()
	file, err = s.files.Find(ctx, path)
	if isTargetRefusal(err) {
		return file, fmt.Sprintf("invalid local_file_path: %v", err), nil
	}
	if err != nil {
		return file, "", err
	}
	timer.ObserveDuration()
	if file.Size < minSwitchFile {
		return file, fmt.Sprintf("invalid local_file_path: %s has %d bytes, less than %d", path, file.Size, minSwitchFile), nil
	}
	return file, "", nil
}
