// SPDX-License-Identifier: Apache-2.0

package promql_test

import (
	"testing"

	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/stretchr/testify/require"
)

func TestX(t *testing.T) {
	_ = parser.ParseExpr
	_ = rulefmt.ParseFile
	_ = promqltest.RunTest
	require.True(t, true)
}
