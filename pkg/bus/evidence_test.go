// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/job"
)

func evidenceJob(t *testing.T) job.ID {
	t.Helper()
	id, err := job.NewFamily(rand.Reader)
	require.NoError(t, err)
	return id
}

// TestEvidence stores, replaces and removes what a job leaves.
func TestEvidence(t *testing.T) {
	t.Parallel()
	c, b := provisioned(t)
	ctx := t.Context()
	id, other := evidenceJob(t), evidenceJob(t)
	bundle, manifest := EvidenceBundle(id), EvidenceManifest(id)
	_, err := c.Evidence(ctx, manifest)
	require.ErrorIs(t, err, ErrNotFound)
	require.NoError(t, c.DropEvidence(ctx, id))

	for _, size := range []int64{0, 1, 3*blobChunk + 1} {
		put, err := c.PutEvidence(ctx, bundle, random(byte(size), size))
		require.NoError(t, err)
		got, err := open(t, b.URL()).Evidence(ctx, bundle)
		require.NoError(t, err)
		require.Equal(t, put, got)
		require.Equal(t, size, got.Size)
		require.Equal(t, digestOf(t, random(byte(size), size)), got.Digest)
		var content bytes.Buffer
		require.NoError(t, c.ReadEvidence(ctx, got, &content))
		require.Equal(t, got.Digest, digestOf(t, &content))
	}
	_, err = c.PutEvidence(ctx, manifest, strings.NewReader("{}"))
	require.NoError(t, err)
	_, err = c.PutEvidence(ctx, EvidenceBundle(other), strings.NewReader("other"))
	require.NoError(t, err)

	// What the NATS client knows of it.
	store, err := rawJetStream(t, b.URL()).ObjectStore(ctx, "rb_evidence")
	require.NoError(t, err)
	data, err := store.GetBytes(ctx, id.String()+"/manifest.json")
	require.NoError(t, err)
	require.Equal(t, "{}", string(data))

	require.NoError(t, c.DropEvidence(ctx, id))
	for _, name := range []EvidenceName{bundle, manifest} {
		_, err = c.Evidence(ctx, name)
		require.ErrorIs(t, err, ErrNotFound)
	}
	_, err = c.Evidence(ctx, EvidenceBundle(other))
	require.NoError(t, err)
}

// TestSpoiltEvidenceIsTold reads an object of which a part was exchanged or is gone.
func TestSpoiltEvidenceIsTold(t *testing.T) {
	t.Parallel()
	c, b := provisioned(t)
	ctx := t.Context()
	name := EvidenceBundle(evidenceJob(t))
	e, err := c.PutEvidence(ctx, name, random(1, 2*blobChunk))
	require.NoError(t, err)
	spoilt := e
	spoilt.Digest[0] ^= 1
	require.ErrorIs(t, c.ReadEvidence(ctx, spoilt, io.Discard), ErrDigest)
	stream, err := rawJetStream(t, b.URL()).Stream(ctx, streamEvidence)
	require.NoError(t, err)
	require.NoError(t, stream.DeleteMsg(ctx, 1))
	require.ErrorIs(t, c.ReadEvidence(ctx, e, io.Discard), ErrNotFound)
}

// TestCutEvidenceKeepsFormer ends a second put in its middle.
func TestCutEvidenceKeepsFormer(t *testing.T) {
	t.Parallel()
	c, _ := provisioned(t)
	ctx := t.Context()
	name := EvidenceBundle(evidenceJob(t))
	first, err := c.PutEvidence(ctx, name, strings.NewReader("first"))
	require.NoError(t, err)
	cut := errors.New("cut")
	_, err = c.PutEvidence(ctx, name, io.MultiReader(random(1, 2*blobChunk), iotest{cut}))
	require.ErrorIs(t, err, cut)
	got, err := c.Evidence(ctx, name)
	require.NoError(t, err)
	require.Equal(t, first, got)
	require.NoError(t, c.ReadEvidence(ctx, got, io.Discard))
}
