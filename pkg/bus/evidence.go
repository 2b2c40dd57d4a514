// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/rackbus/rackbus/pkg/job"
)

// evidence is the object store of what diagnostics of nodes have collected.
func evidence() bucket {
	return bucket{"rb_evidence", streamEvidence, subjEvidenceChunk, subjEvidenceMeta}
}

// The objects of a diagnostics job. The manifest is stored last, so that its
// presence proves that the bundle is whole.
const (
	evidenceBundle   = "bundle.tar.gz"
	evidenceManifest = "manifest.json"
)

// EvidenceName is the name of an object with evidence.
type EvidenceName struct {
	job  job.ID
	file string
}

// EvidenceBundle names the bundle of a job.
func EvidenceBundle(id job.ID) EvidenceName { return EvidenceName{id, evidenceBundle} }

// EvidenceManifest names the manifest of a job.
func EvidenceManifest(id job.ID) EvidenceName { return EvidenceName{id, evidenceManifest} }

// String returns the name as the object store has it: "<job id>/<file>".
func (n EvidenceName) String() string { return n.job.String() + "/" + n.file }

// Evidence is one stored object.
type Evidence struct {
	Name   EvidenceName
	Size   int64
	Digest Digest
	// StoredAt is when the writer described it.
	StoredAt time.Time

	chunked
}

// PutEvidence stores the bytes of r, in place of what the name had before. Until
// all of them are stored, readers get the former content. It needs a few MiB of
// memory whatever their size. What an interrupted call leaves ages out.
func (c *Conn) PutEvidence(ctx context.Context, name EvidenceName, r io.Reader) (Evidence, error) {
	up := c.newUpload(evidence(), "evidence "+name.String())
	if err := up.send(ctx, r); err != nil {
		return Evidence{}, err
	}
	e := Evidence{Name: name, Size: up.size, Digest: up.digest(), StoredAt: time.Now().UTC(), chunked: up.chunked}
	err := c.putObject(ctx, evidence(), objectMeta{
		Name: name.String(), NUID: e.nuid, Size: e.Size, Chunks: e.chunks, ModTime: e.StoredAt.Format(time.RFC3339Nano),
	}, e.Digest)
	if err != nil {
		return Evidence{}, err
	}
	return e, nil
}

// Evidence looks an object up at the leader; ErrNotFound when there is none.
func (c *Conn) Evidence(ctx context.Context, name EvidenceName) (Evidence, error) {
	s, err := c.leaderGet(ctx, streamEvidence, evidence().metaSubject(name.String()))
	if err != nil {
		return Evidence{}, err
	}
	m, err := metaOf(s)
	if err != nil {
		return Evidence{}, err
	}
	sum, err := base64.URLEncoding.DecodeString(strings.TrimPrefix(m.Digest, "SHA-256="))
	e := Evidence{Name: name, Size: m.Size, chunked: chunked{m.NUID, m.Chunks}}
	if err != nil || len(sum) != len(e.Digest) || m.Deleted {
		return Evidence{}, fmt.Errorf("object %q: %w: not evidence", m.Name, ErrNotFound)
	}
	copy(e.Digest[:], sum)
	if e.StoredAt, err = time.Parse(time.RFC3339Nano, m.ModTime); err != nil {
		return Evidence{}, fmt.Errorf("decode %s: %w", s.subject, err)
	}
	return e, nil
}

// ReadEvidence writes the bytes of an object to w, as it was looked up. It wraps
// ErrNotFound when some are gone, for they were replaced or have aged out, and
// ErrDigest when they are not what they should be; w has got some of them then.
func (c *Conn) ReadEvidence(ctx context.Context, e Evidence, w io.Writer) error {
	sum, err := c.readContent(ctx, evidence(), e.chunked, w)
	if err != nil {
		return fmt.Errorf("read evidence %s: %w", e.Name, err)
	}
	if sum != e.Digest {
		return fmt.Errorf("read evidence %s: %w", e.Name, ErrDigest)
	}
	return nil
}

// DropEvidence removes what a job has left, the manifest first. A job without
// evidence is no error.
func (c *Conn) DropEvidence(ctx context.Context, id job.ID) error {
	for _, name := range []EvidenceName{EvidenceManifest(id), EvidenceBundle(id)} {
		e, err := c.Evidence(ctx, name)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if err := c.purge(ctx, streamEvidence, evidence().metaSubject(name.String())); err != nil {
			return err
		}
		if err := c.purge(ctx, streamEvidence, evidence().chunkSubject(e.nuid)); err != nil {
			return err
		}
	}
	return nil
}
