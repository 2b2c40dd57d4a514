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
	taskPoll   = 5 * time.Second
	maxUploads = 64
)

// task is an update task.
type task struct {
	link
	TaskState  string
	TaskStatus string
}

// update installs a package on one device with the requests that the agent
// sends, in its order: write protection, background copies, running tasks, what
// is installed, the upload, and the task every five seconds.
func (d *direct) update(ctx context.Context, node int, image []byte, uploads chan struct{}) error {
	if err := d.checks(ctx, node); err != nil {
		return err
	}
	uri, err := d.upload(ctx, node, image, uploads)
	if err != nil {
		return err
	}
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		var t task
		if err := d.get(ctx, node, uri, &t); err != nil {
			return err
		}
		switch t.TaskState {
		case "Completed":
			return nil
		case "New", "Pending", "Starting", "Running":
			tick.Reset(d.poll)
		default:
			return fmt.Errorf("task ended as %s", t.TaskState)
		}
	}
}

func (d *direct) checks(ctx context.Context, node int) error {
	var chassis struct {
		Oem struct {
			Nvidia struct {
				HardwareWriteProtectEnable bool
				BackgroundCopyStatus       string
			}
		}
	}
	if err := d.get(ctx, node, chassisPath+"/Chassis_0", &chassis); err != nil {
		return err
	}
	if chassis.Oem.Nvidia.HardwareWriteProtectEnable {
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
	var list collection
	if err := d.get(ctx, node, chassisPath, &list); err != nil {
		return err
	}
	for _, member := range list.Members {
		chassis.Oem.Nvidia.BackgroundCopyStatus = ""
		if err := d.get(ctx, node, member.ID, &chassis); err != nil {
			return err
		}
		if s := chassis.Oem.Nvidia.BackgroundCopyStatus; s != "" && s != "Completed" {
			return fmt.Errorf("background copy of %s: %s", member.ID, s)
		}
	}
	return d.checkTasks(ctx, node)
}

func (d *direct) checkTasks(ctx context.Context, node int) error {
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
	if err := d.get(ctx, node, tasksPath, &list); err != nil {
		return err
	}
	_, err := d.software(ctx, node)
	return err
}

func (d *direct) upload(ctx context.Context, node int, image []byte, uploads chan struct{}) (uri string, err error) {
	uploads <- struct{}{}
	defer func() { <-uploads }()
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
