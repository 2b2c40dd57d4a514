// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/firmware/artifact"
	"github.com/rackbus/rackbus/pkg/firmware/catalog"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/services/jobs/internal/download"
	"github.com/rackbus/rackbus/services/jobs/internal/observe"
)

// downloads fetch the artifacts of firmware objects.
type downloads struct {
	fetcher  *artifact.Fetcher
	workflow *download.Workflow
}

// newDownloads returns nil where there is no directory to download to.
func newDownloads(o *Options, store catalog.Store, metrics *observe.Metrics) *downloads {
	if o.FirmwareDir == "" {
		return nil
	}
	options := o.Artifacts
	if options.Logger == nil {
		options.Logger = o.Logger
	}
	options.OnBytes = metrics.ArtifactBytes
	f := artifact.New(options)
	return &downloads{fetcher: f, workflow: download.New(download.Options{
		Jobs: o.Conn, Store: store, Fetcher: f, FirmwareDir: o.FirmwareDir, InStore: o.ArtifactsInStore, Logger: o.Logger,
		OnArtifact: metrics.Artifact,
	})}
}

// handler adds the jobs that are downloads.
func (d *downloads) handler(to map[job.Type]agent.Handler) {
	if d != nil {
		to[job.TypeArtifactDownload] = d.workflow.Run
	}
}
