// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/firmware/catalog"
	"github.com/rackbus/rackbus/pkg/firmware/manifest"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// sizeOf is what a message takes within a list.
func sizeOf(m proto.Message) int { return proto.Size(m) + fieldOverhead }

// answerBudget is how large an answer without job results may be.
func (s *Server) answerBudget() int { return s.opts.MaxAnswerBytes - answerReserve }

// readAndShow reads an object's content and shows all of it.
func (s *Server) readAndShow(ctx context.Context, o *catalog.Object, budget int) (*rackmanager.FirmwareObject, error) {
	config, err := inCatalog(ctx, s, func(ctx context.Context) ([]byte, error) { return s.catalog.Manifest(ctx, o.GetId()) })
	if err != nil {
		return nil, err
	}
	lookup, err := inCatalog(ctx, s, func(ctx context.Context) ([]byte, error) { return s.catalog.Lookup(ctx, o.GetId()) })
	if err != nil {
		return nil, err
	}
	return s.showObject(ctx, o, config, lookup, budget)
}

// showObject is an object as clients see it. What exceeds the budget is left out,
// the manifest first: clients could not read the answer at all. The trailer tells.
func (s *Server) showObject(ctx context.Context, o *catalog.Object, config, lookup []byte, budget int) (*rackmanager.FirmwareObject, error) {
	shown := &rackmanager.FirmwareObject{
		Id: o.GetId(), Available: o.GetAvailable(), Created: o.GetCreatedAt(), Updated: o.GetUpdatedAt(),
		HardwareType: o.GetHardwareType(), IsDefault: o.GetIsDefault(),
	}
	table, err := manifest.DecodeLookup(lookup)
	if err != nil {
		s.log.WarnContext(ctx, "lookup table of a firmware object unreadable", "object", o.GetId(), "err", err)
	}
	shown.Metadata = metadataOf(table)
	if sizeOf(shown) > budget {
		shown.Metadata = nil
		tellReason(ctx, fmt.Sprintf("the metadata of %s is left out to keep the answer small", o.GetId()))
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, config); err != nil {
		return nil, fmt.Errorf("manifest of firmware object %s: %w", o.GetId(), err)
	}
	if sizeOf(shown)+compact.Len()+fieldOverhead > budget {
		tellReason(ctx, fmt.Sprintf("config_json of %s has %d bytes and is left out to keep the answer small", o.GetId(), compact.Len()))
		return shown, nil
	}
	shown.ConfigJson = compact.String()
	return shown, nil
}

// metadataOf describes a lookup table, nil when there is none.
func metadataOf(table *manifest.Lookup) *rackmanager.FirmwareObjectMetadata {
	if table == nil {
		return nil
	}
	m := &rackmanager.FirmwareObjectMetadata{}
	for _, o := range table.Offers() {
		d := &rackmanager.FirmwareObjectDeviceComponents{
			NodeType: rackmanager.NodeType(o.Type.Number), DeviceType: string(o.Role),
			NodeDescriptor: &rackmanager.NodeDescriptor{Attributes: o.Type.Descriptor()},
		}
		for i := range o.Components {
			d.Components = append(d.Components, componentMessage(&o.Components[i]))
		}
		m.DeviceComponents = append(m.DeviceComponents, d)
	}
	for _, image := range table.OfferedImages() {
		m.SwitchSystemImages = append(m.SwitchSystemImages, &rackmanager.FirmwareObjectSwitchSystemImage{
			SoftwareType: image.FirmwareType, Version: image.Version, PackageName: image.PackageName,
			ImageFilename: image.ImageFilename, Required: image.Required,
		})
	}
	return m
}

func componentMessage(c *manifest.OfferedComponent) *rackmanager.FirmwareObjectComponent {
	out := &rackmanager.FirmwareObjectComponent{Name: c.Name, Version: c.Version, Bundle: c.Bundle, SourceComponent: c.Source}
	for _, s := range c.Subcomponents {
		sub := &rackmanager.FirmwareObjectSubcomponent{Name: s.Component, Version: s.Version}
		if s.SKUID != nil {
			sub.SkuId = *s.SKUID
		}
		out.Subcomponents = append(out.Subcomponents, sub)
	}
	for _, a := range c.Artifacts {
		out.Artifacts = append(out.Artifacts, &rackmanager.FirmwareObjectArtifact{
			FirmwareType: a.FirmwareType, Filename: a.Filename, Target: a.Target, Bundle: a.Bundle,
		})
	}
	return out
}
