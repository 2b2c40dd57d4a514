// SPDX-License-Identifier: Apache-2.0

package download

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/credentials"
	"github.com/rackbus/rackbus/pkg/firmware/artifact"
	"github.com/rackbus/rackbus/pkg/firmware/catalog"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/secret"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// phase is the phase of failures.
const phase = "download"

// Waits of the workflow. They are Rackbus choices.
const (
	// storeAttempts and storePause are how often and how long after each other the
	// work is taken up again while the bus is away.
	storeAttempts = 60
	storePause    = 5 * time.Second
	// DefaultCloseLimit bounds the last writes of a job that was cut.
	DefaultCloseLimit = 5 * time.Second
	// DefaultHeartbeat is how often a download shows that it is alive.
	DefaultHeartbeat = 5 * time.Minute
)

// Options configure the workflow. Store, Fetcher and FirmwareDir are required.
type Options struct {
	Store   catalog.Store
	Fetcher *artifact.Fetcher
	// FirmwareDir is where caches are; with InStore it only holds what is under way.
	FirmwareDir string
	// InStore puts artifacts into the store of the catalogue instead of a directory
	// that all processes share.
	InStore bool
	// CloseLimit bounds the last writes of a job that was cut; default
	// DefaultCloseLimit.
	CloseLimit time.Duration
	// Heartbeat is how often a download shows that it is alive; default
	// DefaultHeartbeat.
	Heartbeat time.Duration
	// Jobs tells housekeeping which downloads have ended; nil keeps it from looking.
	Jobs Jobs
	// OnArtifact is told what became of an artifact, one of observe.ArtifactFetched,
	// ArtifactFound and ArtifactFailed; nil is fine.
	OnArtifact func(result string)
	// Logger receives what concerns no job; nil drops it.
	Logger *slog.Logger
}

// Workflow runs downloads.
type Workflow struct{ o Options }

// New returns the workflow.
func New(o Options) *Workflow {
	if o.CloseLimit <= 0 {
		o.CloseLimit = DefaultCloseLimit
	}
	if o.Heartbeat <= 0 {
		o.Heartbeat = DefaultHeartbeat
	}
	if o.OnArtifact == nil {
		o.OnArtifact = func(string) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Workflow{o}
}

// task is what the workflow needs of *agent.Task.
type task interface {
	Command() *rackbusv1.JobCommand
	Secrets(into message) error
	Logger() *slog.Logger
	Progress(percent int, description string)
	Failpoint(name string) error
	RunStages(ctx context.Context, stages []agent.Stage) error
}

// errDeleted says that the cache was removed.
var errDeleted = errors.New("the cache was removed")

// Run is the handler of jobs of the type artifact_download.
func (w *Workflow) Run(ctx context.Context, t *agent.Task) (agent.Outcome, error) {
	return w.run(ctx, t)
}

func (w *Workflow) run(ctx context.Context, t task) (agent.Outcome, error) {
	d := &download{Options: w.o, t: t, cache: t.Command().GetArtifactDownload().GetCache()}
	err := artifact.CheckCache(d.cache)
	if err != nil {
		return agent.Outcome{}, agent.Fail(job.FailureInvalidArgument, phase, err.Error(), err)
	}
	if err = d.open(); err == nil {
		err = t.RunStages(ctx, d.stages())
	}
	return d.end(ctx, err)
}

// download is one job in the hands of this process.
type download struct {
	Options
	t     task
	cache string

	token     secret.Value
	locations map[string]string
	// ephemeral says that the cache is that of an inline apply.
	ephemeral bool
	// created tells the stored object from a later one of the same id.
	created *timestamppb.Timestamp
}

// open reads the secrets of the command.
func (d *download) open() error {
	var m rackbusv1.DownloadSecrets
	err := d.t.Secrets(&m)
	if err != nil && !errors.Is(err, credentials.ErrNone) {
		return agent.Fail(job.FailureCredentialsUnreadable, phase, "the access token of the download cannot be opened by this service", err)
	}
	d.token, d.locations = secret.New(m.GetAccessToken()), m.GetLocations()
	return nil
}

func (d *download) stages() []agent.Stage {
	return []agent.Stage{
		{
			Name: "download", Description: "Download the artifacts", Resume: agent.Resumable, Interruptible: true,
			Attempts: storeAttempts, Pause: storePause, Run: d.fetchAll,
		},
		{
			Name: "publish", Description: "Make the firmware object available", Resume: agent.Repeatable,
			Attempts: storeAttempts, Pause: storePause, Run: d.publish,
		},
	}
}

// publish makes a stored object available, now that everything required is there.
func (d *download) publish(ctx context.Context) error {
	if _, err := d.load(ctx); err != nil {
		return err
	}
	if d.ephemeral {
		return agent.Skip("the artifacts belong to one apply")
	}
	lookup, err := d.Store.Lookup(ctx, d.cache)
	if err == nil {
		_, err = d.Store.SetAvailable(ctx, d.cache, lookup)
	}
	return d.storeError(ctx, err)
}

// load reads the artifacts' records.
func (d *download) load(ctx context.Context) ([]*catalog.Artifact, error) {
	list, err := d.Store.CacheArtifacts(ctx, d.cache)
	if err != nil {
		return nil, d.storeError(ctx, err)
	}
	switch {
	case len(list) > 0:
		d.ephemeral = list[0].GetEphemeral()
	case d.ephemeral:
		return nil, errDeleted
	}
	// An object may have no artifacts; a cache that was removed has no object either.
	return list, d.ours(ctx)
}

// ours makes sure that the stored object is still the one that the job began with: an
// id can be used again as soon as its object is deleted, and must not get the files,
// or the failure, of the former one.
func (d *download) ours(ctx context.Context) error {
	if d.ephemeral {
		return nil // its id is never used again
	}
	o, err := d.Store.Find(ctx, d.cache)
	switch {
	case err != nil:
		return d.storeError(ctx, err)
	case d.created == nil:
		d.created = o.GetCreatedAt()
	case !proto.Equal(d.created, o.GetCreatedAt()):
		return errDeleted
	}
	return nil
}

// storeError tells what an error of the catalogue means for the job: the cache was
// removed, or the bus is away for the time being.
func (d *download) storeError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, catalog.ErrNotFound):
		return errDeleted
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, catalog.ErrInvalid):
		return err
	default:
		return agent.Retry(0, err)
	}
}

// end tells how the job has ended, and leaves no record that waits for it.
func (d *download) end(ctx context.Context, err error) (agent.Outcome, error) {
	if errors.Is(err, agent.ErrHandedOver) {
		return agent.Outcome{}, err
	}
	// What has cut the job does not keep these from being written.
	cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.CloseLimit)
	defer cancel()
	var failure *agent.FailureError
	if errors.Is(err, agent.ErrCancelled) {
		// Whoever removes a cache cancels its download: that says more.
		if _, lerr := d.load(cctx); errors.Is(lerr, errDeleted) {
			err = lerr
		}
	}
	switch {
	case err == nil:
	case errors.Is(err, errDeleted):
		return agent.Outcome{}, d.deleted()
	case errors.As(err, &failure):
		d.giveUp(cctx, failure.Error())
	case errors.Is(err, agent.ErrCancelled), errors.Is(err, agent.ErrTerminated):
		d.giveUp(cctx, "the download was cancelled")
	case errors.Is(err, agent.ErrDeadline):
		d.giveUp(cctx, "the download did not end within its run limit")
	default:
		d.giveUp(cctx, "the download ended by a fault inside Rackbus")
	}
	o := agent.Outcome{ResultJSON: d.result(cctx)}
	if err != nil {
		return o, err
	}
	o.Description = "Artifacts downloaded"
	if d.InStore { // every file has left it
		if err := d.removeFiles(); err != nil {
			d.t.Logger().Warn("directory of fetched files not removed", "cache", d.cache, "err", err)
		}
	}
	return o, nil
}

// deleted ends the download of a cache that was removed.
func (d *download) deleted() error {
	// Whoever removed the cache removed its files too, but some may have come since.
	if err := d.removeFiles(); err != nil {
		d.t.Logger().Warn("files of a removed cache not removed", "cache", d.cache, "err", err)
	}
	message := fmt.Sprintf("download cancelled: firmware object %s was deleted", d.cache)
	if d.ephemeral {
		message = fmt.Sprintf("download cancelled: the apply that needed %s has ended", d.cache)
	}
	return agent.Fail(job.FailureCancelledByOperator, phase, message, fmt.Errorf("%w: %w", agent.ErrCancelled, errDeleted))
}

func (d *download) removeFiles() error {
	if d.InStore {
		return artifact.RemoveIncoming(d.FirmwareDir, d.cache)
	}
	return artifact.RemoveCache(d.FirmwareDir, d.cache, d.ephemeral)
}

// giveUp tells that the download has ended without all that it was to bring.
func (d *download) giveUp(ctx context.Context, reason string) {
	if errors.Is(d.ours(ctx), errDeleted) {
		return
	}
	if err := giveUp(ctx, d.Store, d.cache, d.ephemeral, reason); err != nil {
		d.t.Logger().Error("end of a download not noted in the catalogue", "cache", d.cache, "err", err)
	}
}

// giveUp lets every artifact that is not available fail, and says why in the
// object. A cache that was removed meanwhile is fine.
func giveUp(ctx context.Context, store catalog.Store, cache string, ephemeral bool, reason string) error {
	list, err := store.CacheArtifacts(ctx, cache)
	for _, a := range list {
		if catalog.Settled(a) {
			continue
		}
		uerr := store.UpdateArtifact(ctx, cache, a.GetPath(), func(a *catalog.Artifact) {
			if !catalog.Settled(a) {
				a.State, a.Failure = rackbusv1.ArtifactState_ARTIFACT_STATE_FAILED, reason
			}
		})
		err = errors.Join(err, unlessGone(uerr))
	}
	if !ephemeral {
		_, serr := store.SetFailure(ctx, cache, reason)
		err = errors.Join(err, unlessGone(serr))
	}
	return err
}

func unlessGone(err error) error {
	if errors.Is(err, catalog.ErrNotFound) {
		return nil
	}
	return err
}

// resultArtifact is one artifact in the job's result.
type resultArtifact struct {
	Path      string `json:"path"`
	Component string `json:"component,omitempty"`
	Available bool   `json:"available"`
	SizeBytes int64  `json:"size_bytes,omitempty"`
	SHA256    string `json:"sha256,omitempty"`
	Failure   string `json:"failure,omitempty"`
}

// result is the job's result; without the catalogue there is none.
func (d *download) result(ctx context.Context) string {
	list, err := d.Store.CacheArtifacts(ctx, d.cache)
	if err != nil {
		return ""
	}
	r := struct {
		Cache     string           `json:"cache"`
		Artifacts []resultArtifact `json:"artifacts"`
	}{Cache: d.cache, Artifacts: make([]resultArtifact, len(list))}
	for i, a := range list {
		available := a.GetState() == rackbusv1.ArtifactState_ARTIFACT_STATE_AVAILABLE
		r.Artifacts[i] = resultArtifact{Path: a.GetPath(), Component: a.GetComponent(), Available: available, Failure: a.GetFailure()}
		if available {
			r.Artifacts[i].SizeBytes, r.Artifacts[i].SHA256 = a.GetBytesTotal(), fmt.Sprintf("%x", a.GetSha256())
		}
	}
	data, err := json.Marshal(r)
	if err != nil {
		return ""
	}
	return string(data)
}
