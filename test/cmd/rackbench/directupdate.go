// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"time"
)

// Settings of the agents for updates.
const (
	pollInterval = 5 * time.Second
	maxUploads   = 64
	// maxConnections bounds the devices that are read at length at a time.
	maxConnections = 1024
	// readyReads are good reads in a row, a poll interval apart, that show a
	// device to be ready for an update.
	readyReads = 3
)

// limits are what thousands of updates share.
type limits struct {
	uploads, reads chan struct{}
}

func newLimits() *limits {
	return &limits{uploads: make(chan struct{}, maxUploads), reads: make(chan struct{}, maxConnections)}
}

// task is an update task.
type task struct {
	link
	TaskState  string
	TaskStatus string
}

// update installs a package on one device with the requests that the agent
// sends, in its order and with its pauses: write protection, background copies,
// running tasks, readiness, what is installed, readiness and tasks once more
// right before the upload, and the task until it ends.
func (d *direct) update(ctx context.Context, node int, image []byte, l *limits) error {
	for _, step := range []func(context.Context, int, *limits) error{
		d.checkWritable, d.checkCopies, d.checkTasks, d.look, d.awaitReady, d.note,
	} {
		if err := step(ctx, node, l); err != nil {
			return err
		}
	}
	uri, err := d.upload(ctx, node, image, l)
	if err != nil {
		return err
	}
	for {
		var t task
		if err := d.getLast(ctx, node, uri, &t); err != nil {
			return err
		}
		switch t.TaskState {
		case "Completed":
			return nil
		case "New", "Pending", "Starting", "Running":
			if err := rest(ctx, d.poll); err != nil {
				return err
			}
		default:
			return fmt.Errorf("task ended as %s", t.TaskState)
		}
	}
}

// chassis is what an update needs to know of one.
type chassis struct {
	Oem struct {
		Nvidia struct {
			HardwareWriteProtectEnable bool
			BackgroundCopyStatus       string
		}
	}
}

func (d *direct) checkWritable(ctx context.Context, node int, l *limits) error {
	l.reads <- struct{}{}
	defer func() { <-l.reads }()
	var c chassis
	if err := d.get(ctx, node, chassisPath+"/Chassis_0", &c); err != nil {
		return err
	}
	if c.Oem.Nvidia.HardwareWriteProtectEnable {
		return errors.New("write-protected")
	}
	items, err := d.software(ctx, node)
	if err != nil {
		return err
	}
	for _, item := range items {
		if item.WriteProtected != nil && *item.WriteProtected {
			return fmt.Errorf("%s is write-protected", item.ID)
		}
	}
	return nil
}

func (d *direct) checkCopies(ctx context.Context, node int, _ *limits) error {
	var list collection
	if err := d.get(ctx, node, chassisPath, &list); err != nil {
		return err
	}
	for _, member := range list.Members {
		var c chassis
		if err := d.get(ctx, node, member.ID, &c); err != nil {
			return err
		}
		if s := c.Oem.Nvidia.BackgroundCopyStatus; s != "" && s != "Completed" {
			return fmt.Errorf("background copy of %s: %s", member.ID, s)
		}
	}
	return nil
}

func (d *direct) checkTasks(ctx context.Context, node int, _ *limits) error {
	var list collection
	if err := d.get(ctx, node, tasksPath, &list); err != nil {
		return err
	}
	for _, member := range list.Members {
		var t task
		if err := d.get(ctx, node, member.ID, &t); err != nil {
			return err
		}
		if t.TaskState == "Running" {
			return fmt.Errorf("%s is running", member.ID)
		}
	}
	return nil
}

func (d *direct) awaitReady(ctx context.Context, node int, _ *limits) error {
	for read := range readyReads {
		if read > 0 {
			if err := rest(ctx, d.poll); err != nil {
				return err
			}
		}
		var service struct{ ServiceEnabled bool }
		if err := d.get(ctx, node, updatePath, &service); err != nil {
			return err
		}
		if !service.ServiceEnabled {
			return errors.New("the update service is disabled")
		}
	}
	return nil
}

func (d *direct) look(ctx context.Context, node int, l *limits) error {
	l.reads <- struct{}{}
	defer func() { <-l.reads }()
	_, err := d.software(ctx, node)
	return err
}

func (d *direct) note(ctx context.Context, node int, _ *limits) error {
	var list collection
	if err := d.get(ctx, node, tasksPath, &list); err != nil {
		return err
	}
	var manager struct{ LastResetTime string }
	return d.get(ctx, node, managerPath, &manager)
}

func (d *direct) upload(ctx context.Context, node int, image []byte, l *limits) (uri string, err error) {
	l.uploads <- struct{}{}
	defer func() { <-l.uploads }()
	var service struct{ MultipartHTTPPushURI string }
	if err := d.get(ctx, node, updatePath, &service); err != nil {
		return "", err
	}
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	if err := errors.Join(
		writePart(form, `name="UpdateParameters"`, "application/json", []byte(`{"Targets":[]}`)),
		writePart(form, `name="UpdateFile"; filename="`+packageFile+`"`, "application/octet-stream", image),
		form.Close(),
	); err != nil {
		return "", err
	}
	dev := &d.devices[node]
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, dev.url+service.MultipartHTTPPushURI, &body)
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", form.FormDataContentType())
	var t task
	if err := do(d.writes, dev, req, &t); err != nil {
		return "", err
	}
	if t.ID == "" {
		return "", errors.New("the device named no task")
	}
	return t.ID, nil
}

func writePart(form *multipart.Writer, disposition, contentType string, data []byte) error {
	part, err := form.CreatePart(textproto.MIMEHeader{
		"Content-Disposition": {"form-data; " + disposition}, "Content-Type": {contentType},
	})
	if err != nil {
		return err
	}
	_, err = part.Write(data)
	return err
}
