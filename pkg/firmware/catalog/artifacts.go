// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// recordVersion is the version of every record.
const recordVersion = 1

// pending returns the records of a new cache. Artifacts of one path are one file:
// the first stands for all, and is required if one of them is. They are refused
// when they may differ in content, because one would overwrite the other.
func pending(cache string, ephemeral bool, artifacts []*Artifact) ([]*Artifact, error) {
	byPath := make(map[string]*Artifact, len(artifacts))
	out := make([]*Artifact, 0, len(artifacts))
	for _, a := range artifacts {
		first := byPath[a.GetPath()]
		if first == nil {
			first = proto.CloneOf(a)
			first.V, first.Cache, first.Ephemeral = recordVersion, cache, ephemeral
			first.State, first.UpdatedAt = rackbusv1.ArtifactState_ARTIFACT_STATE_PENDING, timestamppb.Now()
			if err := checkArtifact(first); err != nil {
				return nil, err
			}
			byPath[a.GetPath()] = first
			out = append(out, first)
			continue
		}
		if !sameContent(first, a) {
			return nil, fmt.Errorf("%w: %s comes from %s for %s and from %s for %s", ErrInvalid, a.GetPath(),
				first.GetLocation(), first.GetComponent(), a.GetLocation(), a.GetComponent())
		}
		first.Required = first.GetRequired() || a.GetRequired()
		if len(first.GetWantSha256()) == 0 {
			first.WantSha256 = a.GetWantSha256()
		}
	}
	if len(out) > MaxArtifacts {
		return nil, fmt.Errorf("%w: %s has %d artifacts, at most %d are possible", ErrInvalid, cache, len(out), MaxArtifacts)
	}
	return out, nil
}

func checkArtifact(a *Artifact) error {
	switch n := len(a.GetWantSha256()); {
	case a.GetPath() == "":
		return fmt.Errorf("%w: an artifact of %s has no path", ErrInvalid, a.GetCache())
	case n != 0 && n != sha256.Size:
		return fmt.Errorf("%w: the digest of %s has %d bytes", ErrInvalid, a.GetPath(), n)
	}
	return nil
}

func sameContent(a, b *Artifact) bool {
	if len(a.GetWantSha256()) > 0 && len(b.GetWantSha256()) > 0 {
		return bytes.Equal(a.GetWantSha256(), b.GetWantSha256())
	}
	return a.GetLocation() == b.GetLocation() && a.GetLocationType() == b.GetLocationType()
}

// Settled reports whether the download of an artifact has ended.
func Settled(a *Artifact) bool {
	return a.GetState() == rackbusv1.ArtifactState_ARTIFACT_STATE_AVAILABLE || a.GetState() == rackbusv1.ArtifactState_ARTIFACT_STATE_FAILED
}

// pendingCaches collects what is pending of the artifacts it is given.
type pendingCaches map[string]*PendingCache

func (p pendingCaches) add(a *Artifact) {
	if Settled(a) {
		return
	}
	c := p[a.GetCache()]
	if c == nil {
		c = &PendingCache{Cache: a.GetCache(), Ephemeral: a.GetEphemeral()}
		p[a.GetCache()] = c
	}
	if at := a.GetUpdatedAt().AsTime(); at.After(c.Changed) {
		c.Changed = at
	}
}

func (p pendingCaches) list() []PendingCache {
	out := make([]PendingCache, 0, len(p))
	for _, c := range p {
		out = append(out, *c)
	}
	slices.SortFunc(out, func(a, b PendingCache) int { return cmp.Compare(a.Cache, b.Cache) })
	return out
}

// idleCaches collects when the caches of inline applies have changed last.
type idleCaches map[string]time.Time

func (c idleCaches) add(a *Artifact) {
	if at := a.GetUpdatedAt().AsTime(); a.GetEphemeral() && at.After(c[a.GetCache()]) {
		c[a.GetCache()] = at
	}
}

func (c idleCaches) list(idle time.Duration) []string {
	var out []string
	for cache, changed := range c {
		if time.Since(changed) >= idle {
			out = append(out, cache)
		}
	}
	slices.Sort(out)
	return out
}

// retry makes an artifact pending again, unless it is available.
func retry(a *Artifact) bool {
	if a.GetState() == rackbusv1.ArtifactState_ARTIFACT_STATE_AVAILABLE {
		return false
	}
	a.State = rackbusv1.ArtifactState_ARTIFACT_STATE_PENDING
	a.Failure, a.BytesDone, a.Attempts = "", 0, 0
	a.UpdatedAt = timestamppb.Now()
	return true
}

func newRecord(o NewObject) *Object {
	now := timestamppb.Now()
	r := &Object{V: recordVersion, Id: o.ID, HardwareType: o.HardwareType, CreatedAt: now, UpdatedAt: now}
	r.ConfigSha256 = digestOf(o.Manifest)
	if len(o.Lookup) > 0 {
		r.LookupSha256 = digestOf(o.Lookup)
	}
	return r
}

func digestOf(content []byte) []byte {
	sum := sha256.Sum256(content)
	return sum[:]
}

// references adds the digests that an entry refers to.
func references(to map[[sha256.Size]byte]bool, digests ...[]byte) {
	for _, d := range digests {
		if len(d) == sha256.Size {
			to[[sha256.Size]byte(d)] = true
		}
	}
}

func selected(o *Object, f Filter) bool {
	return (!f.OnlyAvailable || o.GetAvailable()) && (f.HardwareType == "" || f.HardwareType == o.GetHardwareType())
}

func newestObjectFirst(objects []*Object) {
	slices.SortFunc(objects, func(a, b *Object) int {
		return cmp.Or(b.GetCreatedAt().AsTime().Compare(a.GetCreatedAt().AsTime()), cmp.Compare(a.GetId(), b.GetId()))
	})
}

func applied(a *Apply, f HistoryFilter) bool {
	return (f.ObjectID == "" || f.ObjectID == a.GetObjectId()) &&
		(len(f.RackIDs) == 0 || slices.Contains(f.RackIDs, a.GetRackId()))
}
