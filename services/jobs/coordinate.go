// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"fmt"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/services/jobs/internal/coldreboot"
	"github.com/rackbus/rackbus/services/jobs/internal/coordinator"
)

// handlers are the jobs of the family "rack".
func (s *Service) handlers() map[job.Type]agent.Handler {
	handlers := map[job.Type]agent.Handler{
		job.TypeColdRebootSequence: coldreboot.New(coldreboot.Options{Asker: s.o.Conn, Timing: s.o.ColdReboot}).Run,
	}
	s.downloads.handler(handlers)
	return handlers
}

// coordinate works on the jobs of the family "rack" until ctx ends, and hands
// over what it has in hand then.
func (s *Service) coordinate(ctx context.Context) error {
	err := coordinator.Run(ctx, coordinator.Options{
		Conn: s.o.Conn, Instance: s.o.Instance, Opener: s.o.Opener, Handlers: s.handlers(),
		DrainTimeout: s.o.DrainTimeout, ProgressInterval: s.o.ProgressInterval,
		Failpoints: s.o.Failpoints, Registerer: s.o.Registerer, Tracer: s.o.Tracer, Logger: s.log,
	})
	switch {
	case err != nil && ctx.Err() == nil:
		return fmt.Errorf("run coordinators: %w", err)
	case err != nil:
		s.log.Warn("coordinators not stopped cleanly", "err", err)
	}
	return nil
}
