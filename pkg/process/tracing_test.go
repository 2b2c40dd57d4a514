// SPDX-License-Identifier: Apache-2.0

package process_test

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"

	"github.com/rackbus/rackbus/pkg/process"
)

// TestLostTracesAreLogged in the form of all other lines, and not beside them.
func TestLostTracesAreLogged(t *testing.T) {
	path, _ := settings(t, "[tracing]\nendpoint = \"127.0.0.1:1\"\ninsecure = true\n")
	var out lockedBuilder
	code := process.Main(program(func(context.Context, *process.Env) error {
		otel.Handle(errBroken)
		return nil
	}), []string{"--config", path}, &out, io.Discard)
	require.Equal(t, process.ExitOK, code)
	require.Contains(t, out.String(), `level=WARN msg="traces lost" err="the device room is on fire"`)
}
