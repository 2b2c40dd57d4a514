// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"bytes"
	"context"
	"encoding"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
)

// LogFormat is the form of log lines.
type LogFormat string

// The log formats.
const (
	FormatLogfmt LogFormat = "logfmt"
	FormatJSON   LogFormat = "json"
)

// levelOff lies above every level in use.
const levelOff = slog.LevelError + 100

// LogOptions tune a logger. The zero value logs at info, as logfmt without
// timestamps, to stdout.
type LogOptions struct {
	Level      slog.Leveler
	Format     LogFormat
	Timestamps bool
	Output     io.Writer
}

// NewLogger returns a logger that masks secrets in everything it writes.
func NewLogger(opts LogOptions) *slog.Logger {
	if opts.Output == nil {
		opts.Output = os.Stdout
	}
	handlerOptions := &slog.HandlerOptions{Level: opts.Level}
	if !opts.Timestamps {
		handlerOptions.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}
	}
	if opts.Format == FormatJSON {
		return slog.New(&redactor{next: slog.NewJSONHandler(opts.Output, handlerOptions), structured: true})
	}
	return slog.New(&redactor{next: slog.NewTextHandler(opts.Output, handlerOptions)})
}

// ParseLevel reads a log level: trace and debug, info, warn or warning, error,
// off; "" is info. For files written for the published service, a
// comma-separated list of directives is accepted: the one without "=" counts,
// those for single modules ("name=level") are checked and have no effect.
func ParseLevel(text string) (slog.Level, error) {
	level := slog.LevelInfo
	for directive := range strings.SplitSeq(text, ",") {
		directive = strings.TrimSpace(directive)
		_, name, scoped := strings.Cut(directive, "=")
		if !scoped {
			name = directive
		}
		parsed, ok := levelByName(name)
		if !ok {
			return 0, fmt.Errorf("unknown log level %q", directive)
		}
		if !scoped && directive != "" {
			level = parsed
		}
	}
	return level, nil
}

func levelByName(name string) (slog.Level, bool) {
	switch strings.ToLower(strings.TrimSpace(name)) {
	case "trace", "debug":
		return slog.LevelDebug, true
	case "", "info":
		return slog.LevelInfo, true
	case "warn", "warning":
		return slog.LevelWarn, true
	case "error":
		return slog.LevelError, true
	case "off":
		return levelOff, true
	default:
		return 0, false
	}
}

// redactor masks secrets before the next handler sees them.
type redactor struct {
	next slog.Handler
	// structured keeps redacted objects as objects; otherwise they become JSON
	// text.
	structured bool
	// secret is set inside a group whose name is secret.
	secret bool
}

func (h *redactor) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

func (h *redactor) Handle(ctx context.Context, r slog.Record) error {
	out := slog.NewRecord(r.Time, r.Level, RedactText(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		out.AddAttrs(h.attr(a))
		return true
	})
	return h.next.Handle(ctx, out)
}

func (h *redactor) WithAttrs(attrs []slog.Attr) slog.Handler {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = h.attr(a)
	}
	c := *h
	c.next = h.next.WithAttrs(clean)
	return &c
}

func (h *redactor) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	c := *h
	c.next = h.next.WithGroup(name)
	c.secret = h.secret || IsSecretKey(name)
	return &c
}

func (h *redactor) attr(a slog.Attr) slog.Attr {
	if a.Equal(slog.Attr{}) {
		return a
	}
	if h.secret || IsSecretKey(a.Key) {
		return slog.String(a.Key, Mask)
	}
	return slog.Attr{Key: a.Key, Value: h.value(a.Value)}
}

func (h *redactor) value(v slog.Value) slog.Value {
	v = v.Resolve()
	switch v.Kind() {
	case slog.KindString:
		return slog.StringValue(RedactText(v.String()))
	case slog.KindGroup:
		group := v.Group()
		clean := make([]slog.Attr, len(group))
		for i, a := range group {
			clean[i] = h.attr(a)
		}
		return slog.GroupValue(clean...)
	case slog.KindAny:
		return h.any(v.Any())
	default:
		return v
	}
}

// any brings a value into a form in which nothing is hidden from redaction.
func (h *redactor) any(v any) slog.Value {
	switch x := v.(type) {
	case nil, *slog.Source, slog.Level:
		return slog.AnyValue(v)
	case error:
		return slog.StringValue(RedactText(x.Error()))
	case encoding.TextMarshaler:
		text, err := x.MarshalText()
		if err != nil {
			return slog.StringValue("unprintable value")
		}
		return slog.StringValue(RedactText(string(text)))
	case fmt.Stringer:
		return slog.StringValue(RedactText(x.String()))
	case []byte:
		return slog.StringValue(RedactText(string(x)))
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return slog.StringValue(RedactText(fmt.Sprintf("%+v", v)))
	}
	clean, err := redactJSON(raw)
	if err != nil {
		return slog.StringValue("unprintable value")
	}
	if h.structured {
		return slog.AnyValue(json.RawMessage(clean))
	}
	return slog.StringValue(string(clean))
}

func redactJSON(raw []byte) ([]byte, error) {
	var tree any
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber() // keeps large ids exact
	if err := decoder.Decode(&tree); err != nil {
		return nil, err
	}
	return json.Marshal(redactTree(tree))
}

func redactTree(v any) any {
	switch x := v.(type) {
	case map[string]any:
		for key, value := range x {
			if IsSecretKey(key) {
				x[key] = Mask
			} else {
				x[key] = redactTree(value)
			}
		}
	case []any:
		for i := range x {
			x[i] = redactTree(x[i])
		}
	case string:
		return RedactText(x)
	}
	return v
}
