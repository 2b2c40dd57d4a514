// SPDX-License-Identifier: Apache-2.0

package telemetry_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/telemetry"
)

func TestReadinessIsAMetric(t *testing.T) {
	var r telemetry.Readiness
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(&r)
	fault := error(nil)
	r.Add("start", func(context.Context) error { return nil })
	r.Add("bus", func(context.Context) error { return fault })
	for value, err := range map[string]error{"1": nil, "0": errors.New("no connection")} {
		fault = err
		require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP rackbus_ready Whether a check of /readyz passes (1) or not (0).
# TYPE rackbus_ready gauge
rackbus_ready{check="bus"} `+value+`
rackbus_ready{check="start"} 1
`)))
	}
}
