// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/bus/broker"
	"github.com/rackbus/rackbus/pkg/firmware/catalog"
	"github.com/rackbus/rackbus/pkg/firmware/catalog/catalogtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

func TestMemory(t *testing.T) {
	catalogtest.Run(t, func(*testing.T) (catalog.Store, catalog.Store) {
		s := catalog.NewMemory()
		return s, s
	})
}

func TestBus(t *testing.T) {
	catalogtest.Run(t, func(t *testing.T) (catalog.Store, catalog.Store) {
		b := start(t, t.TempDir())
		t.Cleanup(b.Close)
		one := connect(t, b)
		require.NoError(t, one.Provision(t.Context()))
		return catalog.NewBus(one, nil), catalog.NewBus(connect(t, b), nil)
	})
}

func start(t *testing.T, dir string) *broker.Broker {
	t.Helper()
	b, err := broker.Start(broker.Options{Name: "test", StoreDir: dir, Host: "127.0.0.1", Port: -1})
	require.NoError(t, err)
	return b
}

func connect(t *testing.T, b *broker.Broker) *bus.Conn {
	t.Helper()
	c, err := bus.Connect(bus.Options{URLs: []string{b.URL()}, Name: t.Name(), Role: "test"})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// TestBusSurvivesARestart writes everything, restarts the broker, and reads it.
func TestBusSurvivesARestart(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	dir := t.TempDir()
	b := start(t, dir)
	c := connect(t, b)
	require.NoError(t, c.Provision(ctx))
	s := catalog.NewBus(c, nil)
	_, err := s.Create(ctx, catalog.NewObject{
		ID: "one", HardwareType: "gb200", Manifest: []byte("manifest"), Lookup: []byte("lookup"),
		Artifacts: []*catalog.Artifact{{Path: "prod/x.bin"}},
	})
	require.NoError(t, err)
	_, err = s.SetDefault(ctx, "one")
	require.NoError(t, err)
	require.NoError(t, s.RecordApply(ctx, &catalog.Apply{ObjectId: "one"}))
	require.NoError(t, s.CreatePlan(ctx, "plan", []byte("frozen"), time.Hour))
	b.Close()

	b = start(t, dir)
	t.Cleanup(b.Close)
	c = connect(t, b)
	require.NoError(t, c.Verify(ctx))
	s = catalog.NewBus(c, nil)
	o, err := s.FindDefault(ctx, "gb200")
	require.NoError(t, err)
	require.Equal(t, "one", o.GetId())
	manifest, err := s.Manifest(ctx, "one")
	require.NoError(t, err)
	require.Equal(t, "manifest", string(manifest))
	artifacts, err := s.CacheArtifacts(ctx, "one")
	require.NoError(t, err)
	require.Len(t, artifacts, 1)
	lines, err := s.ListHistory(ctx, catalog.HistoryFilter{})
	require.NoError(t, err)
	require.Len(t, lines, 1)
	p, err := s.FindPlan(ctx, "plan")
	require.NoError(t, err)
	require.Equal(t, "frozen", string(p.Body))
}
