// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"

	"github.com/stmcginnis/gofish/schemas"

	"github.com/rackbus/rackbus/pkg/product"
)

// UpdateService is what a device says about taking updates.
type UpdateService struct {
	// Enabled is false only when the device says so.
	Enabled bool
	// MultipartURI, PushURI and SimpleUpdateURI are the advertised ways to update;
	// empty ones are not offered. They are paths on the device.
	MultipartURI    string
	PushURI         string
	SimpleUpdateURI string
	// ApplyTime is the apply time set for pushes, ApplyTimes what may be set.
	ApplyTime  schemas.OperationApplyTime
	ApplyTimes []string
	// MaxImageSize is in bytes; 0 when the device does not say.
	MaxImageSize int64

	res *resource
}

var (
	// ErrUpdateServiceDisabled is wrapped when the device takes no updates.
	ErrUpdateServiceDisabled = errors.New("the update service is disabled")
	// ErrNoUpdateMethod is wrapped when the device offers no way to upload.
	ErrNoUpdateMethod = errors.New("the device offers no usable update method")
	// ErrImageTooLarge is wrapped when the image exceeds what the device takes.
	ErrImageTooLarge = errors.New("the image is larger than the device accepts")
)

// UpdateService reads the update service. A disabled one is an error wrapping
// ErrUpdateServiceDisabled. Push URIs that lead off the device are left out; for
// products that prefer the multipart push their usual path takes its place.
func (c *Client) UpdateService(ctx context.Context) (*UpdateService, error) {
	const op = "read update service"
	r, err := c.get(ctx, op, updatePath)
	if err != nil {
		return nil, err
	}
	s := &UpdateService{Enabled: true, res: r}
	if enabled, ok := r.flag("ServiceEnabled"); ok {
		s.Enabled = enabled
	}
	for _, f := range []struct {
		field *string
		ref   string
	}{
		{&s.MultipartURI, r.link("MultipartHttpPushUri")},
		{&s.PushURI, r.link("HttpPushUri")},
		{&s.SimpleUpdateURI, r.at("Actions", "#UpdateService.SimpleUpdate").text("target")},
	} {
		if f.ref != "" {
			*f.field, _ = c.checkRef(op, f.ref)
		}
	}
	if s.MultipartURI == "" && r.link("MultipartHttpPushUri") != "" && c.profile.Update == product.UpdateMultipart {
		// It takes such pushes; what it said of where is not to be followed.
		s.MultipartURI = c.profile.MultipartPath
	}
	apply := r.at("HttpPushUriOptions", "HttpPushUriApplyTime")
	s.ApplyTime = schemas.OperationApplyTime(apply.text("ApplyTime"))
	s.ApplyTimes = apply.texts("ApplyTime@Redfish.AllowableValues")
	s.MaxImageSize, _ = r.integer("MaxImageSizeBytes")
	if !s.Enabled {
		return s, &Error{Op: op, Path: r.path, Code: CodeFailedPrecondition, cause: ErrUpdateServiceDisabled}
	}
	return s, nil
}

// WaitReady waits until the update service was read several times in a row.
// Right after a reboot a BMC serves its root long before it takes updates.
func (c *Client) WaitReady(ctx context.Context) error {
	const op = "wait for update service"
	deadline := within(c.timing.ReadyLimit)
	good := 0
	for attempt := 1; ; attempt++ {
		_, err := c.UpdateService(ctx)
		if err == nil {
			if good++; good >= c.timing.ReadyReads {
				return nil
			}
		} else {
			good = 0
			if hopeless(ctx, err) || errors.Is(err, ErrUpdateServiceDisabled) {
				return err
			}
			c.log.Info("update service not ready", slog.Int("attempt", attempt), slog.String("err", err.Error()))
		}
		wait := pause(c.timing.ReadyInterval, err)
		if deadline.passedAfter(wait) {
			return &Error{Op: op, Code: CodeTimeout, reason: "the update service did not become ready", cause: err}
		}
		if err := sleep(ctx, op, wait); err != nil {
			return err
		}
	}
}

// SetApplyTime makes pushes apply at the given time, Immediate or OnReset. It
// does nothing when that is set already.
func (c *Client) SetApplyTime(ctx context.Context, applyTime schemas.OperationApplyTime) error {
	const op = "set apply time"
	if applyTime != schemas.ImmediateOperationApplyTime && applyTime != schemas.OnResetOperationApplyTime {
		return invalid(op, "the apply time has to be Immediate or OnReset")
	}
	s, err := c.UpdateService(ctx)
	if err != nil {
		return err
	}
	if s.ApplyTime == applyTime {
		return nil
	}
	err = c.patch(ctx, op, s.res, map[string]any{
		"HttpPushUriOptions": map[string]any{"HttpPushUriApplyTime": map[string]any{"ApplyTime": applyTime}},
	})
	if statusOf(err) != http.StatusBadRequest {
		return err
	}
	// Some answer 400 although the value is in force.
	if again, readErr := c.UpdateService(ctx); readErr == nil && again.ApplyTime == applyTime {
		return nil
	}
	return err
}

// setPushOptions makes the device's push options what an upload wants. Only
// options that the device shows are touched.
func (c *Client) setPushOptions(ctx context.Context, s *UpdateService, targets []string, force bool) error {
	const op = "set push options"
	change := map[string]any{}
	if s.res.has("HttpPushUriTargets") {
		if !slices.Equal(s.res.texts("HttpPushUriTargets"), targets) {
			change["HttpPushUriTargets"] = append([]string{}, targets...)
		}
	} else if len(targets) > 0 {
		return fault(op, CodeFailedPrecondition, "the device cannot aim a plain push at a target")
	}
	options := s.res.object("HttpPushUriOptions")
	if current, ok := options.flag("ForceUpdate"); ok {
		if current != force {
			change["HttpPushUriOptions"] = map[string]any{"ForceUpdate": force}
		}
	} else if force {
		return fault(op, CodeFailedPrecondition, "the device cannot force a plain push")
	}
	if len(change) == 0 {
		return nil
	}
	return c.patch(ctx, op, s.res, change)
}
