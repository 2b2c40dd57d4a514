// SPDX-License-Identifier: Apache-2.0

package config

import (
	"log/slog"
	"net"
	"reflect"
	"strconv"
	"time"

	"github.com/rackbus/rackbus/pkg/telemetry"
)

// GRPCAddr returns the address of the gRPC listener.
func (c *Config) GRPCAddr() string { return net.JoinHostPort(c.Listen, strconv.Itoa(int(c.Port))) }

// MetricsAddr returns the address of the listener for metrics and health.
func (c *Config) MetricsAddr() string {
	host := c.Metrics.Listen
	if host == "" {
		host = c.Listen
	}
	return net.JoinHostPort(host, strconv.Itoa(int(c.Metrics.Port)))
}

// Plaintext reports whether the gRPC listener serves without TLS: no
// certificate is given and both the setting and the environment allow it.
func (c *Config) Plaintext() bool {
	return c.TLS.Cert == "" && c.TLS.Insecure && c.insecureAllowed
}

// LogOptions returns the options of the process's logger.
func (c *Config) LogOptions() telemetry.LogOptions {
	level, err := telemetry.ParseLevel(c.Logging.LogLevel)
	if err != nil {
		level = slog.LevelInfo // Validate has refused it before
	}
	return telemetry.LogOptions{
		Level:      level,
		Format:     telemetry.LogFormat(c.Logging.Format),
		Timestamps: c.Logging.EnableTimestamps,
	}
}

// TerminalJobTTL returns how long a finished job can still be read.
func (c *Config) TerminalJobTTL() time.Duration {
	return time.Duration(c.Workflows.TerminalJobTTLSeconds) * time.Second
}

// SFTPUploadTimeout returns the limit for one upload to a switch.
func (c *Config) SFTPUploadTimeout() time.Duration {
	return time.Duration(c.Workflows.SFTPUploadTimeoutSeconds) * time.Second
}

// SFTPStepTimeout returns the limit for one step of such an upload.
func (c *Config) SFTPStepTimeout() time.Duration {
	return time.Duration(c.Workflows.SFTPStepTimeoutSeconds) * time.Second
}

// OnBusy returns what happens when a job of a type meets a busy node.
func (c *Config) OnBusy(jobType string) string {
	if policy, ok := c.Jobs.OnBusy[jobType]; ok {
		return policy
	}
	return c.Jobs.OnBusy[onBusyDefault]
}

// RunDeadline returns how long a job of a type may run; an unknown type gets
// one hour.
func (c *Config) RunDeadline(jobType string) time.Duration {
	if d, ok := c.Jobs.RunDeadline[jobType]; ok {
		return d
	}
	return time.Hour
}

// BusTiming returns the bus timing with the values for the number of replicas
// where none is set. It is never scaled.
func (c *Config) BusTiming() BusTiming {
	t := c.Timing.Bus
	standard := busTimingFor(c.Bus.Replicas)
	for value, fallback := range map[*time.Duration]time.Duration{
		&t.SessionTTL:    standard.SessionTTL,
		&t.SessionRenew:  standard.SessionRenew,
		&t.SessionMargin: standard.SessionMargin,
		&t.AckWait:       standard.AckWait,
		&t.WorkInterval:  standard.WorkInterval,
		&t.NakBusy:       standard.NakBusy,
		&t.FoldTTL:       standard.FoldTTL,
		&t.FoldRenew:     standard.FoldRenew,
	} {
		if *value == 0 {
			*value = fallback
		}
	}
	return t
}

// RedfishTiming returns the Redfish waits with the scale applied.
func (c *Config) RedfishTiming() RedfishTiming { return scaled(c.Timing.Redfish, c.Timing.Scale) }

// ColdRebootTiming returns the waits of a cold reboot with the scale applied.
func (c *Config) ColdRebootTiming() ColdRebootTiming {
	return scaled(c.Timing.ColdReboot, c.Timing.Scale)
}

// scaled multiplies the durations of a flat struct, except those tagged
// scale:"no": a faster rack does not answer a single request faster.
func scaled[T any](timing T, factor float64) T {
	v := reflect.ValueOf(&timing).Elem()
	for i := range v.NumField() {
		if v.Field(i).Type() != durationType || v.Type().Field(i).Tag.Get("scale") == "no" {
			continue
		}
		v.Field(i).SetInt(int64(float64(v.Field(i).Int()) * factor))
	}
	return timing
}
