// SPDX-License-Identifier: Apache-2.0

package artifactcache_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/firmware/artifactcache"
	"github.com/rackbus/rackbus/pkg/firmware/catalog"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// interrupted is a catalogue whose first watch breaks off. What it lists is changed
// while nobody watches.
type interrupted struct {
	catalog.Store
	watches []map[string]rackbusv1.ArtifactState
	next    int
}

func (i *interrupted) WatchCache(ctx context.Context, cache string, each func(string, catalog.ArtifactChange) error, current func()) error {
	list := i.watches[min(i.next, len(i.watches)-1)]
	i.next++
	for path, state := range list {
		a := &catalog.Artifact{Cache: cache, Path: path, State: state}
		if err := each(path, catalog.ArtifactChange{Artifact: a}); err != nil {
			return err
		}
	}
	current()
	if i.next == 1 {
		time.Sleep(time.Second)
		return errAway
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// An artifact that was removed while the catalogue could not be watched is gone: who
// waits for it is told so, and not after the silence of a download.
func TestRemovedWhileNobodyWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const loading = rackbusv1.ArtifactState_ARTIFACT_STATE_DOWNLOADING
		store := &interrupted{watches: []map[string]rackbusv1.ArtifactState{{"prod/a.bin": loading, "prod/b.bin": loading}, {"prod/b.bin": loading}}}
		c := artifactcache.New(artifactcache.Options{Store: store, FirmwareDir: t.TempDir(), InStore: true})
		started := time.Now()
		_, err := c.Wait(t.Context(), ref("object", "a.bin"), nil)
		require.ErrorIs(t, err, artifactcache.ErrGone)
		require.Less(t, time.Since(started), time.Minute)
	})
}
