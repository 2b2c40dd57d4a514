// SPDX-License-Identifier: Apache-2.0

package redfishagent

import (
	"context"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/config"
	"github.com/rackbus/rackbus/pkg/firmware/artifactcache"
	"github.com/rackbus/rackbus/pkg/firmware/catalog"
	"github.com/rackbus/rackbus/pkg/process"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// catalogue gives the workflows the files of the firmware catalogue.
type catalogue struct{ cache *artifactcache.Cache }

func artifactsOf(env *process.Env, conn *bus.Conn) Artifacts {
	cfg := env.Config
	return catalogue{artifactcache.New(artifactcache.Options{
		Store: catalog.NewBus(conn, env.Log), FirmwareDir: cfg.Workflows.FirmwareDir,
		InStore:  cfg.Workflows.ArtifactStore == config.ArtifactStoreBus,
		MaxBytes: int64(cfg.Artifacts.CacheBytes), Silence: cfg.Artifacts.WaitTimeout, Logger: env.Log,
	})}
}

// Wait waits for a file.
func (c catalogue) Wait(ctx context.Context, ref *rackbusv1.ArtifactRef, progress func(done, total int64)) (Artifact, error) {
	f, err := c.cache.Wait(ctx, ref, progress)
	return Artifact(f), err
}
