// SPDX-License-Identifier: Apache-2.0

package telemetry_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/secret"
	"github.com/rackbus/rackbus/pkg/telemetry"
)

const planted = "pl4nted"

type login struct {
	User     string `json:"user"`
	Password string `json:"password"`
}

type masked struct{}

func (masked) LogValue() slog.Value { return slog.GroupValue(slog.String("token", planted)) }

func TestSecretsNeverReachTheLog(t *testing.T) {
	for _, format := range []telemetry.LogFormat{telemetry.FormatLogfmt, telemetry.FormatJSON} {
		t.Run(string(format), func(t *testing.T) {
			var out bytes.Buffer
			log := telemetry.NewLogger(telemetry.LogOptions{Format: format, Output: &out})
			log.Info("login failed password="+planted,
				"password", planted,
				"typed", secret.New(planted),
				"err", fmt.Errorf("send: %w", errors.New("token="+planted)),
				"text", "a secret: "+planted,
				"struct", login{"admin", planted},
				"pointer", &login{"admin", planted},
				"list", []login{{"admin", planted}},
				"map", map[string]any{"n": 12345678901234567, "deep": map[string]string{"api-key": planted}},
				"bytes", []byte("password="+planted),
				"valuer", masked{},
				"channel", make(chan int),
				slog.Group("request", "user", "admin", "access_token", planted, slog.Group("in", "pwd", planted)),
				slog.Group("credentials", "anything", planted))
			log.With("token", planted).WithGroup("session").With("x", planted).Info("grouped", "y", planted)
			log.WithGroup("g").Info("grouped", "cookie", planted, "plain", 1)

			require.NotContains(t, out.String(), planted)
			require.Contains(t, out.String(), "admin")
			require.Contains(t, out.String(), "12345678901234567")
			require.Contains(t, out.String(), telemetry.Mask)
			if format == telemetry.FormatJSON {
				for line := range bytes.Lines(out.Bytes()) {
					require.True(t, json.Valid(line), "%s", line)
				}
			}
		})
	}
}

func TestLogLines(t *testing.T) {
	var out bytes.Buffer
	log := telemetry.NewLogger(telemetry.LogOptions{Output: &out})
	log.Debug("not shown")
	log.With("rack", "r1").Info("job started", "node", "n 1", "attempt", 2, "addr", netip.MustParseAddr("10.0.0.1"), "nothing", nil)
	require.Equal(t, "level=INFO msg=\"job started\" rack=r1 node=\"n 1\" attempt=2 addr=10.0.0.1 nothing=<nil>\n", out.String())

	out.Reset()
	log = telemetry.NewLogger(telemetry.LogOptions{Output: &out, Timestamps: true, Level: slog.LevelDebug, Format: telemetry.FormatJSON})
	log.Debug("shown", "login", login{"admin", "x"})
	var line map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &line))
	require.NotEmpty(t, line["time"])
	require.Equal(t, map[string]any{"user": "admin", "password": "XXXX"}, line["login"])
}

func TestParseLevel(t *testing.T) {
	tests := map[string]slog.Level{
		"": slog.LevelInfo, "info": slog.LevelInfo, "DEBUG": slog.LevelDebug, "trace": slog.LevelDebug,
		" warn ": slog.LevelWarn, "warning": slog.LevelWarn, "error": slog.LevelError,
		"h2=warn,debug": slog.LevelDebug, "warn,sqlx=info": slog.LevelWarn, "sqlx=debug": slog.LevelInfo,
	}
	for text, want := range tests {
		got, err := telemetry.ParseLevel(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	off, err := telemetry.ParseLevel("off")
	require.NoError(t, err)
	require.Greater(t, off, slog.LevelError)
	for _, text := range []string{"loud", "info,loud", "x=loud"} {
		_, err := telemetry.ParseLevel(text)
		require.Error(t, err, text)
	}
}
