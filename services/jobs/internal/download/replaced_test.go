// SPDX-License-Identifier: Apache-2.0

package download

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/firmware/catalog"
)

// blind is a catalogue whose watchers are told nothing.
type blind struct{ catalog.Store }

func (blind) WatchCache(ctx context.Context, _ string, _ func(string, catalog.ArtifactChange) error, _ func()) error {
	<-ctx.Done()
	return ctx.Err()
}

// An object is deleted, and another one of the same id created, while a download is
// under way: it must not give the new one what it has fetched for the old one, nor
// its failure.
func TestReplacedObject(t *testing.T) {
	r := newRig(t)
	r.w = New(Options{Store: blind{r.store}, Fetcher: r.w.o.Fetcher, FirmwareDir: r.dir})
	r.object(r.artifacts("a.bin"))
	var once sync.Once
	r.asking = func(string) {
		once.Do(func() {
			require.NoError(t, r.store.Delete(t.Context(), "object"))
			r.object(r.artifacts("a.bin"))
		})
	}
	_, err := r.w.run(t.Context(), jobFor("object"))
	require.ErrorContains(t, err, "was deleted")
	o := r.find()
	require.False(t, o.GetAvailable())
	require.Empty(t, o.GetFailure())
	require.NotContains(t, r.states("object"), "available")
	require.NotContains(t, r.states("object"), "failed")

	_, err = r.w.run(t.Context(), jobFor("object"))
	require.NoError(t, err)
	require.True(t, r.find().GetAvailable())
}
