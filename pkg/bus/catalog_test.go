// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

func objectKey(t *testing.T, id string) CatalogKey {
	t.Helper()
	k, err := CatalogObject(id)
	require.NoError(t, err)
	return k
}

func TestCatalogKeys(t *testing.T) {
	t.Parallel()
	_, err := CatalogObject("")
	require.ErrorIs(t, err, ErrBadID)
	_, err = CatalogPlan(strings.Repeat("x", maxTokenBytes+1))
	require.ErrorIs(t, err, ErrBadID)
	for _, cache := range []string{"ACME72_9.1.0", "a b/c", "x"} {
		k, err := CatalogArtifact(cache, 17)
		require.NoError(t, err)
		r, err := CatalogCache(cache)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(k.subject, strings.TrimSuffix(r.filter, "*")), "%s is not below %s", k, r.filter)
	}
}

// TestCatalogChangesTogether expects that of two changes neither is made when one
// of them is based on what is not so any more.
func TestCatalogChangesTogether(t *testing.T) {
	t.Parallel()
	c, b := provisioned(t)
	ctx := t.Context()
	one, two := objectKey(t, "one"), objectKey(t, "two")
	record := func(id string) *rackbusv1.FirmwareObjectRecord { return &rackbusv1.FirmwareObjectRecord{V: 1, Id: id} }
	made, err := c.CommitCatalog(ctx, CatalogWrite{Key: one, Value: record("one")}, CatalogWrite{Key: two, Value: record("two")})
	require.NoError(t, err)
	_, err = c.CommitCatalog(ctx,
		CatalogWrite{Key: one, Value: record("changed"), Expect: made.At(0)}, CatalogWrite{Key: two, Value: record("changed")})
	require.ErrorIs(t, err, ErrConflict)
	var got rackbusv1.FirmwareObjectRecord
	rev, err := open(t, b.URL()).CatalogEntry(ctx, one, &got)
	require.NoError(t, err)
	require.Equal(t, "one", got.GetId())
	require.Equal(t, made.At(0), rev)

	// A removed entry is absent, and its revision is what a new one expects.
	gone, err := c.CommitCatalog(ctx, CatalogWrite{Key: one, Expect: rev})
	require.NoError(t, err)
	rev, err = c.CatalogEntry(ctx, one, &got)
	require.ErrorIs(t, err, ErrNotFound)
	require.Equal(t, gone.Last, rev)
	var ids []string
	require.NoError(t, c.CatalogEntries(ctx, CatalogObjects, func(e CatalogEntry) error {
		require.NoError(t, e.Decode(&got))
		ids = append(ids, got.GetId())
		return nil
	}))
	require.Equal(t, []string{"two"}, ids)
	_, err = c.CommitCatalog(ctx, CatalogWrite{Key: one, Value: record("again"), Expect: rev})
	require.NoError(t, err)
}

func TestWatchCatalog(t *testing.T) {
	t.Parallel()
	c, _ := provisioned(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := CatalogCache("cache")
	require.NoError(t, err)
	key, err := CatalogArtifact("cache", 0)
	require.NoError(t, err)
	rev := Absent
	put := func(bytes int64) {
		made, err := c.CommitCatalog(ctx, CatalogWrite{
			Key: key, Value: &rackbusv1.ArtifactRecord{V: 1, BytesDone: bytes}, Expect: rev,
		})
		require.NoError(t, err)
		rev = made.Last
	}
	put(1)
	current := make(chan struct{})
	seen := make(chan string)
	done := make(chan error, 1)
	stop := errors.New("enough")
	go func() {
		done <- c.WatchCatalog(ctx, r, func(e CatalogEntry) error {
			if e.Removed {
				return stop
			}
			var got rackbusv1.ArtifactRecord
			if err := e.Decode(&got); err != nil {
				return err
			}
			seen <- strconv.FormatInt(got.GetBytesDone(), 10)
			return nil
		}, func() { close(current) })
	}()
	require.Equal(t, "1", receive(ctx, t, seen))
	<-current
	put(2)
	require.Equal(t, "2", receive(ctx, t, seen))
	_, err = c.CommitCatalog(ctx, CatalogWrite{Key: key, Expect: rev})
	require.NoError(t, err)
	require.ErrorIs(t, receive(ctx, t, done), stop)
}
