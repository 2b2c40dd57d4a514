// SPDX-License-Identifier: Apache-2.0

// Package catalogtest has the tests that every store of package catalog passes.
package catalogtest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/firmware/catalog"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// patience bounds every wait for something that must happen.
const patience = 20 * time.Second

// Open returns two views of one empty store, as two processes have them.
type Open func(t *testing.T) (a, b catalog.Store)

// Run runs the suite.
func Run(t *testing.T, open Open) {
	for _, c := range []struct {
		name string
		test func(*testing.T, catalog.Store, catalog.Store)
	}{
		{"create", create},
		{"list", list},
		{"available", available},
		{"failure and retry", failureAndRetry},
		{"defaults", defaults},
		{"concurrent defaults", concurrentDefaults},
		{"first default", firstDefault},
		{"delete", deleteObject},
		{"history", history},
		{"artifacts", artifacts},
		{"artifacts of one path", artifactsOfOnePath},
		{"concurrent updates", concurrentUpdates},
		{"watch", watch},
		{"drop cache", dropCache},
		{"shared content", sharedContent},
		{"plans", plans},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a, b := open(t)
			c.test(t, a, b)
		})
	}
}

// object is an object to create, with two artifacts.
func object(id, hardwareType string) catalog.NewObject {
	return catalog.NewObject{
		ID: id, HardwareType: hardwareType, Manifest: []byte(`{"ProductName":"` + id + `"}`), Lookup: []byte("lookup of " + id),
		Artifacts: []*catalog.Artifact{
			{Path: "prod/one.bin", Location: "https://example.invalid/one.bin", LocationType: "https", Component: "HMC", Required: true},
			{Path: "prod/two.bin", Location: "https://example.invalid/two.bin", LocationType: "https", Component: "BMC", Required: true},
		},
	}
}

func add(t *testing.T, s catalog.Store, id, hardwareType string) *catalog.Object {
	t.Helper()
	o, err := s.Create(t.Context(), object(id, hardwareType))
	require.NoError(t, err)
	return o
}

func ids(objects []*catalog.Object) []string {
	out := []string{}
	for _, o := range objects {
		out = append(out, o.GetId())
	}
	return out
}

func create(t *testing.T, a, b catalog.Store) {
	ctx := t.Context()
	before := time.Now()
	made := add(t, a, "ACME_9.1 x", "gb200")
	require.False(t, made.GetAvailable())
	require.False(t, made.GetIsDefault())
	require.Equal(t, made.GetCreatedAt().AsTime(), made.GetUpdatedAt().AsTime())
	require.WithinRange(t, made.GetCreatedAt().AsTime(), before, time.Now())

	_, err := b.Create(ctx, object("ACME_9.1 x", "other"))
	require.ErrorIs(t, err, catalog.ErrExists)
	require.EqualError(t, err, "firmware object ACME_9.1 x already exists")
	_, err = b.Create(ctx, object("", "gb200"))
	require.ErrorIs(t, err, catalog.ErrInvalid)
	_, err = b.Create(ctx, object("id", ""))
	require.ErrorIs(t, err, catalog.ErrInvalid)

	got, err := b.Find(ctx, "ACME_9.1 x")
	require.NoError(t, err)
	require.Equal(t, "gb200", got.GetHardwareType())
	manifest, err := b.Manifest(ctx, "ACME_9.1 x")
	require.NoError(t, err)
	require.JSONEq(t, `{"ProductName":"ACME_9.1 x"}`, string(manifest))
	lookup, err := b.Lookup(ctx, "ACME_9.1 x")
	require.NoError(t, err)
	require.Equal(t, "lookup of ACME_9.1 x", string(lookup))

	for _, err := range []error{
		second(b.Find(ctx, "none")), second(b.Manifest(ctx, "none")), second(b.Lookup(ctx, "none")),
		second(b.SetAvailable(ctx, "none", nil)), second(b.SetFailure(ctx, "none", "x")), second(b.SetDownloadJob(ctx, "none", "x")),
		second(b.RetryDownload(ctx, "none")), second(b.SetDefault(ctx, "none")), second(b.SetDefaultIfNone(ctx, "none")),
		b.Delete(ctx, "none"),
	} {
		require.ErrorIs(t, err, catalog.ErrNotFound)
		require.EqualError(t, err, "firmware object none not found")
	}
	withoutLookup := object("bare", "gb200")
	withoutLookup.Lookup, withoutLookup.Artifacts = nil, nil
	_, err = a.Create(ctx, withoutLookup)
	require.NoError(t, err)
	lookup, err = b.Lookup(ctx, "bare")
	require.NoError(t, err)
	require.Empty(t, lookup)
}

func second[T any](_ T, err error) error { return err }

func list(t *testing.T, a, b catalog.Store) {
	ctx := t.Context()
	none, err := a.List(ctx, catalog.Filter{})
	require.NoError(t, err)
	require.Empty(t, none)
	for _, id := range []string{"one", "two", "three"} {
		add(t, a, id, "gb200")
	}
	add(t, b, "four", "any")
	for _, id := range []string{"two", "four"} {
		_, err := a.SetAvailable(ctx, id, nil)
		require.NoError(t, err)
	}
	for _, c := range []struct {
		filter catalog.Filter
		want   []string
	}{
		{catalog.Filter{}, []string{"four", "three", "two", "one"}},
		{catalog.Filter{HardwareType: "gb200"}, []string{"three", "two", "one"}},
		{catalog.Filter{OnlyAvailable: true}, []string{"four", "two"}},
		{catalog.Filter{OnlyAvailable: true, HardwareType: "gb200"}, []string{"two"}},
		{catalog.Filter{HardwareType: "gb300"}, []string{}},
	} {
		got, err := b.List(ctx, c.filter)
		require.NoError(t, err)
		require.Equal(t, c.want, ids(got), "%+v", c.filter)
	}
}

func available(t *testing.T, a, b catalog.Store) {
	ctx := t.Context()
	made := add(t, a, "one", "gb200")
	_, err := a.SetFailure(ctx, "one", "cut")
	require.NoError(t, err)
	_, err = a.SetDownloadJob(ctx, "one", "job")
	require.NoError(t, err)
	_, err = b.SetAvailable(ctx, "one", []byte("new lookup"))
	require.NoError(t, err)
	got, err := a.Find(ctx, "one")
	require.NoError(t, err)
	require.True(t, got.GetAvailable())
	require.Empty(t, got.GetFailure())
	require.Equal(t, "job", got.GetDownloadJobId())
	require.True(t, got.GetUpdatedAt().AsTime().After(made.GetUpdatedAt().AsTime()))
	require.Equal(t, made.GetCreatedAt().AsTime(), got.GetCreatedAt().AsTime())
	lookup, err := a.Lookup(ctx, "one")
	require.NoError(t, err)
	require.Equal(t, "new lookup", string(lookup))
	manifest, err := a.Manifest(ctx, "one")
	require.NoError(t, err)
	require.NotEmpty(t, manifest)
}

func failureAndRetry(t *testing.T, a, b catalog.Store) {
	ctx := t.Context()
	add(t, a, "one", "gb200")
	set := func(path string, state rackbusv1.ArtifactState) {
		require.NoError(t, a.UpdateArtifact(ctx, "one", path, func(r *catalog.Artifact) {
			r.State, r.Failure, r.BytesDone, r.Attempts = state, "cut", 7, 3
		}))
	}
	set("prod/one.bin", rackbusv1.ArtifactState_ARTIFACT_STATE_FAILED)
	set("prod/two.bin", rackbusv1.ArtifactState_ARTIFACT_STATE_AVAILABLE)
	_, err := a.SetFailure(ctx, "one", "one could not be had")
	require.NoError(t, err)
	got, err := b.Find(ctx, "one")
	require.NoError(t, err)
	require.Equal(t, "one could not be had", got.GetFailure())

	n, err := b.RetryDownload(ctx, "one")
	require.NoError(t, err)
	require.Equal(t, 1, n)
	got, err = a.Find(ctx, "one")
	require.NoError(t, err)
	require.Empty(t, got.GetFailure())
	records, err := a.CacheArtifacts(ctx, "one")
	require.NoError(t, err)
	require.Equal(t, rackbusv1.ArtifactState_ARTIFACT_STATE_PENDING, records[0].GetState())
	require.Empty(t, records[0].GetFailure())
	require.Zero(t, records[0].GetBytesDone())
	require.Equal(t, rackbusv1.ArtifactState_ARTIFACT_STATE_AVAILABLE, records[1].GetState())
	require.Equal(t, int64(7), records[1].GetBytesDone())
}

// defaultsOf returns the default objects of a hardware type.
func defaultsOf(t *testing.T, s catalog.Store, hardwareType string) []string {
	t.Helper()
	objects, err := s.List(t.Context(), catalog.Filter{HardwareType: hardwareType})
	require.NoError(t, err)
	out := []string{}
	for _, o := range objects {
		if o.GetIsDefault() {
			out = append(out, o.GetId())
		}
	}
	return out
}

func defaults(t *testing.T, a, b catalog.Store) {
	ctx := t.Context()
	_, err := a.FindDefault(ctx, "gb200")
	require.ErrorIs(t, err, catalog.ErrNotFound)
	require.EqualError(t, err, "default firmware object for gb200 not found")
	one := add(t, a, "one", "gb200")
	add(t, a, "two", "gb200")
	add(t, a, "other", "any")
	got, err := a.SetDefault(ctx, "one")
	require.NoError(t, err)
	require.True(t, got.GetIsDefault())
	require.True(t, got.GetUpdatedAt().AsTime().After(one.GetUpdatedAt().AsTime()))
	_, err = b.SetDefault(ctx, "other")
	require.NoError(t, err)
	require.Equal(t, []string{"one"}, defaultsOf(t, b, "gb200"))
	require.Equal(t, []string{"other"}, defaultsOf(t, a, "any"))

	former, err := b.Find(ctx, "one")
	require.NoError(t, err)
	_, err = b.SetDefault(ctx, "two")
	require.NoError(t, err)
	require.Equal(t, []string{"two"}, defaultsOf(t, a, "gb200"))
	now, err := a.Find(ctx, "one")
	require.NoError(t, err)
	require.True(t, now.GetUpdatedAt().AsTime().After(former.GetUpdatedAt().AsTime()), "the former default was changed too")
	got, err = a.FindDefault(ctx, "gb200")
	require.NoError(t, err)
	require.Equal(t, "two", got.GetId())

	got, err = a.SetDefaultIfNone(ctx, "one")
	require.NoError(t, err)
	require.False(t, got.GetIsDefault())
	require.Equal(t, []string{"two"}, defaultsOf(t, b, "gb200"))
	require.NoError(t, a.Delete(ctx, "two"))
	_, err = b.FindDefault(ctx, "gb200")
	require.ErrorIs(t, err, catalog.ErrNotFound)
	got, err = b.SetDefaultIfNone(ctx, "one")
	require.NoError(t, err)
	require.True(t, got.GetIsDefault())
	_, err = a.SetDefault(ctx, "one")
	require.NoError(t, err, "again")
	require.Equal(t, []string{"one"}, defaultsOf(t, a, "gb200"))
}

// concurrentDefaults lets many writers choose, while objects come and go.
func concurrentDefaults(t *testing.T, a, b catalog.Store) {
	ctx := t.Context()
	const objects, rounds = 4, 5
	for i := range objects {
		add(t, a, fmt.Sprint("object-", i), "gb200")
	}
	var wg sync.WaitGroup
	errs := make([]error, 2*objects+1)
	for i := range objects {
		for j, s := range []catalog.Store{a, b} {
			wg.Go(func() {
				for range rounds {
					o, err := s.SetDefault(ctx, fmt.Sprint("object-", i))
					if err == nil && !o.GetIsDefault() {
						err = errors.New("the object returned is not the default")
					}
					errs[2*i+j] = errors.Join(errs[2*i+j], err)
				}
			})
		}
	}
	wg.Go(func() {
		for i := range rounds {
			id := fmt.Sprint("brief-", i)
			_, err := b.Create(ctx, object(id, "gb200"))
			_, derr := b.SetDefault(ctx, id)
			errs[2*objects] = errors.Join(errs[2*objects], err, derr, a.Delete(ctx, id))
		}
	})
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	left := defaultsOf(t, a, "gb200")
	require.LessOrEqual(t, len(left), 1)
	found, err := b.FindDefault(ctx, "gb200")
	if len(left) == 0 { // the last one chosen was removed
		require.ErrorIs(t, err, catalog.ErrNotFound)
		return
	}
	require.NoError(t, err)
	require.Equal(t, left[0], found.GetId())
}

// firstDefault lets many writers choose a first default: one of them does.
func firstDefault(t *testing.T, a, b catalog.Store) {
	ctx := t.Context()
	const objects = 6
	var wg sync.WaitGroup
	errs := make([]error, objects)
	won := make([]bool, objects)
	for i := range objects {
		s := []catalog.Store{a, b}[i%2]
		wg.Go(func() {
			id := fmt.Sprint("object-", i)
			if _, errs[i] = s.Create(ctx, object(id, "gb200")); errs[i] != nil {
				return
			}
			var o *catalog.Object
			o, errs[i] = s.SetDefaultIfNone(ctx, id)
			won[i] = o.GetIsDefault()
		})
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	require.Len(t, defaultsOf(t, a, "gb200"), 1)
	n := 0
	for _, w := range won {
		if w {
			n++
		}
	}
	require.Equal(t, 1, n)
}

func deleteObject(t *testing.T, a, b catalog.Store) {
	ctx := t.Context()
	add(t, a, "one", "gb200")
	require.NoError(t, a.RecordApply(ctx, &catalog.Apply{ObjectId: "one", RackId: "r"}))
	require.NoError(t, b.Delete(ctx, "one"))
	require.ErrorIs(t, second(a.Find(ctx, "one")), catalog.ErrNotFound)
	require.ErrorIs(t, a.Delete(ctx, "one"), catalog.ErrNotFound)
	left, err := a.CacheArtifacts(ctx, "one")
	require.NoError(t, err)
	require.Empty(t, left)
	err = a.UpdateArtifact(ctx, "one", "prod/one.bin", func(*catalog.Artifact) {})
	require.ErrorIs(t, err, catalog.ErrNotFound)
	lines, err := a.ListHistory(ctx, catalog.HistoryFilter{})
	require.NoError(t, err)
	require.Len(t, lines, 1)
	freed, err := a.Collect(ctx, 0)
	require.NoError(t, err)
	require.Zero(t, freed, "nothing was left behind")

	// The id can be used again, and starts anew.
	again := object("one", "gb200")
	again.Artifacts = again.Artifacts[:1]
	_, err = a.Create(ctx, again)
	require.NoError(t, err)
	left, err = b.CacheArtifacts(ctx, "one")
	require.NoError(t, err)
	require.Len(t, left, 1)
}

func history(t *testing.T, a, b catalog.Store) {
	ctx := t.Context()
	add(t, a, "one", "gb200")
	for i, line := range []*catalog.Apply{
		{ObjectId: "one", RackId: "r1", FirmwareType: "prod", HardwareType: "gb200", NodeIds: []string{"n1", "n2"}, JobId: "job"},
		{ObjectId: "one", RackId: "r2", NodeIds: []string{"n1"}, RefusedNodeIds: []string{"n2"}},
		{ObjectId: "two", RackId: "r1"},
	} {
		require.NoError(t, []catalog.Store{a, b}[i%2].RecordApply(ctx, line))
	}
	for _, c := range []struct {
		filter catalog.HistoryFilter
		want   []string
	}{
		{catalog.HistoryFilter{}, []string{"two r1", "one r2", "one r1"}},
		{catalog.HistoryFilter{ObjectID: "one"}, []string{"one r2", "one r1"}},
		{catalog.HistoryFilter{RackIDs: []string{"r1", "r9"}}, []string{"two r1", "one r1"}},
		{catalog.HistoryFilter{ObjectID: "one", RackIDs: []string{"r1"}}, []string{"one r1"}},
		{catalog.HistoryFilter{ObjectID: "none"}, []string{}},
	} {
		lines, err := b.ListHistory(ctx, c.filter)
		require.NoError(t, err)
		got := []string{}
		for _, l := range lines {
			require.False(t, l.FirmwareAvailable)
			require.WithinDuration(t, time.Now(), l.GetAppliedAt().AsTime(), patience)
			got = append(got, l.GetObjectId()+" "+l.GetRackId())
		}
		require.Equal(t, c.want, got)
	}
	_, err := a.SetAvailable(ctx, "one", nil)
	require.NoError(t, err)
	lines, err := b.ListHistory(ctx, catalog.HistoryFilter{RackIDs: []string{"r1"}})
	require.NoError(t, err)
	require.False(t, lines[0].FirmwareAvailable)
	require.True(t, lines[1].FirmwareAvailable)
	require.Equal(t, []string{"n1", "n2"}, lines[1].GetNodeIds())
	require.Equal(t, "job", lines[1].GetJobId())

	for i, want := range []int{2, 1, 0} {
		keep := 2 - i
		n, err := a.TrimHistory(ctx, keep)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		lines, err = b.ListHistory(ctx, catalog.HistoryFilter{})
		require.NoError(t, err)
		require.Len(t, lines, want)
		if keep == 2 {
			require.Equal(t, "two", lines[0].GetObjectId(), "the oldest goes")
		}
	}
	n, err := a.TrimHistory(ctx, 1)
	require.NoError(t, err)
	require.Zero(t, n)
}
