// SPDX-License-Identifier: Apache-2.0

package console

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// ErrInvalidOptions is wrapped by every error about Options.
var ErrInvalidOptions = errors.New("console: invalid options")

// Options configure a Console. Conn is required.
type Options struct {
	// Conn reaches the services of the API. It calls with the rights of whoever the
	// context names: the browser's for what a request asks for, those of Run's context
	// for the picture that all share, which need to suffice for reading jobs.
	Conn grpc.ClientConnInterface
	// Secure says that browsers come over TLS, so that the cookie may demand it.
	Secure bool
	// RacksPerPage is how many elevations a page shows; default 24.
	RacksPerPage int
	// PageSize is how many jobs a page shows; default 100, at most 500.
	PageSize int
	// MaxStreams bounds the pages that are live at a time; default 256.
	MaxStreams int
	Timing     Timing
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

// Timing is every wait and limit of the console.
type Timing struct {
	// CallLimit bounds what one page asks of the API; default 10 s.
	CallLimit time.Duration
	// ReadyLimit is how long a page waits for the first picture of the jobs; default 3 s.
	ReadyLimit time.Duration
	// WatchRetry is the pause before a broken watch of the jobs is opened again;
	// default 500 ms.
	WatchRetry time.Duration
	// InventoryAge is how old the list of registered nodes may be; default 2 s.
	InventoryAge time.Duration
	// PatchInterval is the least pause between two events of a live page; default 500 ms.
	PatchInterval time.Duration
	// Heartbeat is how often a live page hears of the server without any change;
	// default 15 s.
	Heartbeat time.Duration
	// StreamRetry is when a browser comes back after a lost stream; default 2 s.
	StreamRetry time.Duration
	// StreamLife ends a stream, so that whoever may not come back is out; default 1 h.
	StreamLife time.Duration
	// WriteLimit is how long a browser may take nothing of what is sent; default 30 s.
	WriteLimit time.Duration
}

func (o Options) withDefaults() (Options, error) {
	if o.Conn == nil {
		return o, fmt.Errorf("%w: no connection", ErrInvalidOptions)
	}
	for value, standard := range map[*int]int{&o.RacksPerPage: 24, &o.PageSize: 100, &o.MaxStreams: 256} {
		if *value <= 0 {
			*value = standard
		}
	}
	for value, standard := range map[*time.Duration]time.Duration{
		&o.Timing.CallLimit:     10 * time.Second,
		&o.Timing.ReadyLimit:    3 * time.Second,
		&o.Timing.WatchRetry:    500 * time.Millisecond,
		&o.Timing.InventoryAge:  2 * time.Second,
		&o.Timing.PatchInterval: 500 * time.Millisecond,
		&o.Timing.Heartbeat:     15 * time.Second,
		&o.Timing.StreamRetry:   2 * time.Second,
		&o.Timing.StreamLife:    time.Hour,
		&o.Timing.WriteLimit:    30 * time.Second,
	} {
		if *value <= 0 {
			*value = standard
		}
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o, nil
}

// Console is the web console. It serves once Run is called.
type Console struct {
	opts      Options
	log       *slog.Logger
	jobs      rackbusv1.JobsClient
	access    rackbusv1.AccessClient
	inventory *inventory
	fleet     *fleet
	histories *histories
	boards    boards
	templates *template.Template
	assets    *assets
	handler   http.Handler

	streams  chan struct{}
	stopping chan struct{} // closed when streams must end
	stop     sync.Once
}

// New returns a console over the services that opts.Conn reaches.
func New(opts Options) (*Console, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	files, err := loadAssets()
	if err != nil {
		return nil, err
	}
	templates, err := loadTemplates(files)
	if err != nil {
		return nil, err
	}
	jobs := rackbusv1.NewJobsClient(opts.Conn)
	c := &Console{
		opts: opts, log: opts.Logger, jobs: jobs, access: rackbusv1.NewAccessClient(opts.Conn),
		inventory: &inventory{client: rackmanager.NewRackManagerClient(opts.Conn), maxAge: opts.Timing.InventoryAge},
		fleet:     newFleet(jobs, opts.Timing.WatchRetry, opts.Logger), histories: newHistories(jobs),
		templates: templates, assets: files, streams: make(chan struct{}, opts.MaxStreams), stopping: make(chan struct{}),
	}
	c.handler = c.routes()
	return c, nil
}

// Run follows the jobs until ctx ends, with the rights of ctx.
func (c *Console) Run(ctx context.Context) { c.fleet.run(ctx) }

// EndStreams ends what would otherwise never end by itself: live pages. They come back
// to another replica.
func (c *Console) EndStreams() { c.stop.Do(func() { close(c.stopping) }) }

// ServeHTTP serves everything from / on.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) { c.handler.ServeHTTP(w, r) }

// Parts of the console, in the order of its menu.
const (
	navRacks = "racks"
	navJobs  = "jobs"
	navHelp  = "help"
)

func (c *Console) routes() http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range map[string]handler{
		"GET /{$}":                       c.serveRacks,
		"GET /racks/{rack}":              c.serveRack,
		"GET /racks/{rack}/nodes/{node}": c.serveNode,
		"GET /jobs":                      c.serveJobs,
		"GET /jobs/{job}":                c.serveJob,
		"GET /jobs/{job}/evidence":       c.serveEvidence,
		"GET /jobs/{job}/do/{action}":    c.confirm,
		"POST /jobs/{job}/do/{action}":   c.act,
		"GET /help":                      c.serveHelp,
		"GET /live/racks":                c.liveRacks,
		"GET /live/jobs":                 c.liveJobs,
		"GET /live/jobs/{job}":           c.liveJob,
		"GET /":                          c.serveMissing,
	} {
		mux.Handle(pattern, c.guarded(h))
	}
	mux.Handle("GET /static/{file}", c.assets)
	return c.hardened(mux)
}
