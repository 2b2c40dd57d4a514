// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/firmware/catalog"
	"github.com/rackbus/rackbus/services/jobs/internal/observe"
	"github.com/rackbus/rackbus/services/jobs/internal/share"
	"github.com/rackbus/rackbus/services/jobs/internal/timers"
)

// Service is one replica of the jobs service.
type Service struct {
	o       Options
	log     *slog.Logger
	metrics *observe.Metrics
	share   *share.Share
	catalog catalog.Store
	// downloads is nil without a firmware directory.
	downloads *downloads
}

// New returns a service that does nothing until Run. Errors wrap
// ErrInvalidOption, or say that a metric's name is taken.
func New(o Options) (*Service, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	metrics, err := observe.NewMetrics(o.Registerer)
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	store := catalog.NewBus(o.Conn, o.Logger)
	return &Service{
		o: o, log: o.Logger, metrics: metrics, share: share.New(bus.Partitions),
		catalog: store, downloads: newDownloads(&o, store, metrics),
	}, nil
}

// Run prepares the bus and works until ctx ends; it then hands its partitions
// over and returns nil. Before that it returns only when the bus is not usable:
// the error wraps bus.ErrMisconfigured, bus.ErrServerVersion or bus.ErrClosed.
func (s *Service) Run(ctx context.Context) error {
	if err := s.o.Conn.Provision(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("provision bus: %w", err)
	}
	diagnoses, end, err := s.diagnoses()
	if err != nil {
		return err
	}
	defer end()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { s.balance(ctx) })
	wg.Go(func() { s.keepStreams(ctx) })
	for p := range bus.Partitions {
		wg.Go(func() { s.lead(ctx, p) })
	}
	handler := &timers.Handler{
		Conn: s.o.Conn, Limits: s.o.Limits, FirmwareDir: s.o.FirmwareDir, Caches: s.catalog, Retention: s.o.Retention,
		QueueDeadline: s.o.QueueDeadline, Diagnoses: diagnoses,
		Log: s.log, Metrics: s.metrics, Failpoints: s.o.Failpoints,
	}
	wg.Go(func() { handler.Run(ctx) })
	if s.downloads != nil {
		defer s.downloads.fetcher.Close()
		wg.Go(func() { s.downloads.workflow.Housekeep(ctx) })
	}
	wg.Go(func() {
		// Without it the rest would go on, and its jobs wait for ever.
		if err = s.coordinate(ctx); err != nil {
			stop()
		}
	})
	wg.Wait()
	return err
}

// Active returns the partitions this replica is active for, in order.
func (s *Service) Active() []int { return s.share.Held() }
