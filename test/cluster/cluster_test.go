// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/test/cluster"
)

// TestStop: every process ends with 0 upon SIGTERM, the broker last.
func TestStop(t *testing.T) {
	c := cluster.Start(t, cluster.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	all := c.All()
	for i := len(all) - 1; i > 0; i-- {
		require.NoError(t, all[i].Stop(ctx), all[i].Name)
		require.False(t, all[i].Alive())
	}
}
