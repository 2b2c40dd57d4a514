// SPDX-License-Identifier: Apache-2.0

package flint

import (
	"context"
	"fmt"
	"io"
	"path"

	"github.com/rackbus/rackbus/pkg/redfishagent"
	"github.com/rackbus/rackbus/pkg/ssh"
)

// stageImages copies the images to the host and matches them with the devices.
func (r *run) stageImages(ctx context.Context) error {
	h, err := r.f.connect(r.t)
	if err != nil {
		return err
	}
	defer h.close()
	err = r.stage(ctx, h)
	if err == nil {
		return r.save()
	}
	r.tidy(ctx, h)
	return fail(phaseUpdate, "prepare the images on the host", again(err))
}

func (r *run) stage(ctx context.Context, h *host) error {
	images, err := r.copyImages(ctx, h)
	if err != nil {
		return err
	}
	for i := range images {
		if images[i].Firmware, err = h.queryImage(ctx, path.Join(r.state.Dir, images[i].Name)); err != nil {
			return fmt.Errorf("read the image %s: %w", images[i].Name, err)
		}
	}
	matches, err := Choose(r.state.Found, images)
	if err != nil {
		return err
	}
	r.state.Devices = nil
	for _, m := range matches {
		s := deviceState{
			Component: m.Image.Component, Kind: m.Device.Kind, Path: m.Device.Path, PSID: m.Device.PSID,
			Previous: m.Device.Version, Expected: m.Image.Version, File: m.Image.Name,
		}
		if !r.u.Force && m.Device.Version == m.Image.Version {
			s.Flash = flashNone
			if m.Device.Running != "" && m.Device.Running != m.Device.Version {
				// Written before, by whomever: it only waits for the activation.
				s.Flash, s.Previous = flashDone, m.Device.Running
			}
		}
		r.state.Devices = append(r.state.Devices, s)
	}
	r.state.Matched = true
	return nil
}

// copyImages copies all images to a new work directory.
func (r *run) copyImages(ctx context.Context, h *host) ([]Image, error) {
	if r.state.Dir != "" {
		// Of an earlier try; a new one is made, since nobody knows what is in it.
		if err := h.removeDir(ctx, r.state.Dir); err != nil {
			return nil, err
		}
	}
	dir, err := h.makeDir(ctx)
	if err != nil {
		return nil, fmt.Errorf("make a work directory: %w", err)
	}
	r.state.Dir = dir
	if err := r.u.State.Save(ctx, r.state); err != nil {
		return nil, err
	}
	var images []Image
	for i, img := range r.u.Images {
		of := fmt.Sprintf("Copying image %d/%d to the host: %s", i+1, len(r.u.Images), img.Name)
		if err := r.copyImage(ctx, h, img, of); err != nil {
			return nil, fmt.Errorf("copy the image %s: %w", img.Name, err)
		}
		images = append(images, Image{Component: img.Component, Kind: img.Device, Name: img.Name})
	}
	return images, nil
}

func (r *run) copyImage(ctx context.Context, h *host, img redfishagent.InBandImage, doing string) error {
	file, err := img.Open(ctx)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	_, err = h.c.Upload(ctx, ssh.Upload{
		Source: io.NewSectionReader(file, 0, info.Size()), Path: path.Join(r.state.Dir, img.Name),
		Limit: h.timing.Upload,
		Progress: func(sent, total int64) {
			if total > 0 {
				r.t.Progress(int(100*sent/total), doing)
			}
		},
	})
	return err
}

// clean removes the work directory. Images that stay behind harm nobody.
func (r *run) clean(ctx context.Context) error {
	if r.state.Dir == "" {
		return nil
	}
	h, err := r.f.connect(r.t)
	if err != nil {
		return err
	}
	defer h.close()
	r.tidy(ctx, h)
	return r.save()
}

// tidy removes the work directory as far as that is possible.
func (r *run) tidy(ctx context.Context, h *host) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.timing.Clean)
	defer cancel()
	if err := h.removeDir(ctx, r.state.Dir); err != nil {
		r.t.Logger().Warn("images not removed from the host", "op", "clean", "dir", r.state.Dir, "err", err)
		return
	}
	r.state.Dir = ""
}
