// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// trailerStream keeps the trailer of a call.
type trailerStream struct {
	grpc.ServerTransportStream
	trailer metadata.MD
}

func (s *trailerStream) SetTrailer(md metadata.MD) error {
	s.trailer = metadata.Join(s.trailer, md)
	return nil
}

// TestReasonsKeepWithinATrailer gives a reason for each of many nodes: a client that
// takes 8 KiB of metadata, as many do, still reads the answer.
func TestReasonsKeepWithinATrailer(t *testing.T) {
	t.Parallel()
	stream := &trailerStream{}
	ctx := withNotes(grpc.NewContextWithServerTransportStream(t.Context(), stream))
	for i := range 1000 {
		tellReason(ctx, fmt.Sprintf("node %d is left out to keep the answer small", i))
	}
	sent := stream.trailer.Get(metaReason)
	require.Equal(t, "node 0 is left out to keep the answer small", sent[0])
	require.Greater(t, len(sent), 10)
	require.LessOrEqual(t, len(strings.Join(sent, "")), maxReason)
	reason, _ := notesOf(ctx)
	require.Equal(t, sent[len(sent)-1], reason)
	alone := withNotes(grpc.NewContextWithServerTransportStream(t.Context(), stream))
	tellReason(alone, strings.Repeat("x", 2*maxReason))
	reason, _ = notesOf(alone)
	require.Len(t, reason, maxReason)
}
