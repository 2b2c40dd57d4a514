// SPDX-License-Identifier: Apache-2.0

package firmware

import (
	"context"
	"fmt"
	"path"
	"strings"

	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/source"
	"github.com/rackbus/rackbus/services/switch-agent/internal/upload"
)

// PushFile is a file that is put into the folder of a component.
type PushFile struct {
	Component string
	// Name is the file's name on the switch.
	Name string
	// File is the path below the firmware directory, with size and SHA-256 of the
	// admitted file.
	File   string
	Size   int64
	SHA256 []byte
}

// Push sends a file without installing it. A file that is there already, the same
// by size and SHA-256, is not sent again.
func (u *Updater) Push(ctx context.Context, sw *device.Switch, p PushFile) error {
	if err := source.CheckName(p.Name); err != nil {
		return fmt.Errorf("%w: %w", device.ErrTarget, err)
	}
	f, err := u.opts.Files.Open(ctx, source.Ref{File: p.File, Size: p.Size, SHA256: p.SHA256}, nil)
	if err != nil {
		return err
	}
	defer f.Close()
	done, err := u.opts.Uploads.Send(ctx, sw, upload.File{
		// The folder has the component's own name here, not that of a target.
		Source: f, Dir: path.Join(firmwareDir, strings.ToLower(strings.TrimSpace(p.Component))), Name: p.Name, MakeDir: true,
	}, u.opts.Limits.Push)
	if err != nil {
		return err
	}
	sw.Log.Info("firmware file on the switch", "op", "push", "unchanged", done.Unchanged, "sent", done.Sent, "resumed", done.Resumed)
	return nil
}
