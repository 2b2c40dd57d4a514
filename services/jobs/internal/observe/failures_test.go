// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/job"
)

// TestD6FailuresAreCountedByCode: the reasons why a device cannot be connected to have
// labels of their own, readable before the first failure.
func TestD6FailuresAreCountedByCode(t *testing.T) {
	m, err := NewMetrics(prometheus.NewRegistry())
	require.NoError(t, err)
	require.Equal(t, len(job.FailureCodes()), testutil.CollectAndCount(m.failures))
	p := NewPartition(m, slog.New(slog.DiscardHandler))
	end := func(to job.State, f *job.Failure) {
		r := leaf(t, time.Now())
		r.Failure = f
		p.Transition(r, job.Transition{To: job.StateQueued})
		p.Transition(r, job.Transition{From: job.StateQueued, To: to})
	}
	reasons := []job.FailureCode{
		job.FailureNameUnresolved, job.FailureBMCUnreachable, job.FailureCertificateUntrusted, job.FailureCertificateName,
		job.FailureClientCertificateRefused,
	}
	for _, code := range reasons {
		end(job.StateFailed, job.NewFailure(code, "x"))
		require.InDelta(t, 1, testutil.ToFloat64(m.failures.WithLabelValues(string(code))), 0)
	}
	end(job.StateCompleted, nil)
	end(job.StateFailed, nil)
	end(job.StateFailed, job.NewFailure("OF_A_NEWER_VERSION", "x"))
	require.InDelta(t, 2, testutil.ToFloat64(m.failures.WithLabelValues(codeUnknown)), 0)
	require.Equal(t, len(job.FailureCodes())+1, testutil.CollectAndCount(m.failures))
}
