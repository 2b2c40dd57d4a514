// SPDX-License-Identifier: Apache-2.0

// Package reqlog records what clients asked of the simulated devices.
package reqlog

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/rackbus/rackbus/sim/internal/glob"
)

// Protocols of entries.
const (
	// Redfish requests go to BMCs, NVUE requests to switches; both are HTTP.
	Redfish = "redfish"
	NVUE    = "nvue"
	// SSH entries are logins (method LOGIN), command lines (EXEC, the line is the path) and terminals (SHELL).
	SSH = "ssh"
	// SFTP entries are whole files (GET, PUT) and single calls (STAT, REMOVE, RENAME, MKDIR, SETSTAT).
	SFTP = "sftp"
	// GRPC entries are calls (CALL); the path is the full method.
	GRPC = "grpc"
)

// Entry is one request. It is recorded when the request has ended, also when the client went away in the middle.
type Entry struct {
	// Seq counts entries of one log from 1, in the order in which requests ended.
	Seq uint64 `json:"-"`
	// Time is when the request's head had arrived.
	Time time.Time `json:"time"`
	// Device is the node id of the device that was asked.
	Device string `json:"device"`
	// Protocol is one of the constants of this package.
	Protocol string `json:"protocol"`
	Method   string `json:"method"`
	Path     string `json:"path"`
	Query    string `json:"query,omitempty"`
	// Verb is the action that an NVUE POST starts, for example "@install".
	Verb string `json:"verb,omitempty"`
	// ReadOnly marks requests that change nothing although their method says nothing about it: SSH and gRPC.
	ReadOnly bool `json:"read_only,omitempty"`
	// Status is the HTTP status put on the wire, the exit status of a command, or the gRPC status of a call. For HTTP
	// 0 means that no answer was written; for a command -1 means the same.
	Status int `json:"status"`
	// Bytes counts the body bytes received, multipart framing included.
	Bytes int64 `json:"bytes"`
	// Complete means that the whole body was received and the answer was written.
	Complete  bool   `json:"complete"`
	UserAgent string `json:"user_agent"`
	// DurationMS is the time from Time to the end of the request, in milliseconds.
	DurationMS float64 `json:"duration_ms"`
	// SHA256 is the hex digest of the firmware file bytes received; set for uploads.
	SHA256 string `json:"sha256,omitempty"`
	// Upload has the details of a firmware upload.
	Upload *Upload `json:"upload,omitempty"`
	// Fault is the id of the last fault rule that acted on the request.
	Fault string `json:"fault,omitempty"`
}

// End is when the request had ended.
func (e Entry) End() time.Time {
	return e.Time.Add(time.Duration(e.DurationMS * float64(time.Millisecond)))
}

// Write reports whether the request could change the device (any method but GET, HEAD and OPTIONS, unless ReadOnly).
func (e Entry) Write() bool {
	return !e.ReadOnly && e.Method != http.MethodGet && e.Method != http.MethodHead && e.Method != http.MethodOptions
}

// Upload describes the firmware file of an upload request.
type Upload struct {
	// File is the name the client gave, empty for octet-stream pushes.
	File string `json:"file,omitempty"`
	// FileBytes counts the file bytes received, without multipart framing.
	FileBytes int64 `json:"file_bytes"`
	// Parameters is the UpdateParameters part as it came.
	Parameters json.RawMessage `json:"parameters,omitempty"`
	// OEM is the OemParameters part as it came.
	OEM json.RawMessage `json:"oem,omitempty"`
	// Targets are the Targets of UpdateParameters.
	Targets []string `json:"targets,omitempty"`
	// PowerDevice is the LiteonPowerDeviceId header.
	PowerDevice string `json:"power_device,omitempty"`
	// Task is the id of the task the upload started.
	Task string `json:"task,omitempty"`
	// DurationMS is how long the file's bytes took to arrive, in milliseconds.
	DurationMS float64 `json:"duration_ms"`
}

// Filter selects entries; zero fields select all.
type Filter struct {
	// Device and Path are patterns: * is any run without a slash, ** any run.
	Device string
	Path   string
	Method string
	// Protocol is one of the constants of this package.
	Protocol string
	// Writes selects requests that are not GET, HEAD or OPTIONS, and not ReadOnly.
	Writes bool
	// Uploads selects firmware uploads.
	Uploads bool
	// After selects entries with a higher Seq.
	After uint64
}

// matcher returns the filter as a function, patterns compiled once.
func (f Filter) matcher() func(*Entry) bool {
	device, path := glob.Compile(f.Device), glob.Compile(f.Path)
	return func(e *Entry) bool {
		return e.Seq > f.After &&
			(f.Method == "" || f.Method == e.Method) &&
			(f.Protocol == "" || f.Protocol == e.Protocol) &&
			(!f.Writes || e.Write()) &&
			(!f.Uploads || e.Upload != nil) &&
			device.Match(e.Device) && path.Match(e.Path)
	}
}

type contextKey struct{}

// NewContext returns a context in which handlers find e and add what they learn about the request.
func NewContext(ctx context.Context, e *Entry) context.Context {
	return context.WithValue(ctx, contextKey{}, e)
}

// FromContext returns the entry of the request being served; outside of a request an entry nobody reads.
func FromContext(ctx context.Context) *Entry {
	if e, ok := ctx.Value(contextKey{}).(*Entry); ok {
		return e
	}
	return &Entry{}
}
