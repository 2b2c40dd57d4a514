// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rackbus/rackbus/pkg/bus"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// Pauses before a change that met another one is made again; they grow with the
// number of tries.
const (
	conflictPauseMin = 5 * time.Millisecond
	conflictPauseMax = 200 * time.Millisecond
)

// Bus is the Store that all processes of an installation share.
type Bus struct {
	conn *bus.Conn
	log  *slog.Logger

	mu sync.Mutex
	// keys remembers where the artifacts are that this process works on.
	keys map[artifactName]bus.CatalogKey
}

type artifactName struct{ cache, path string }

// keysKept bounds the remembered keys.
const keysKept = 8 * MaxArtifacts

var _ Store = (*Bus)(nil)

// NewBus returns the store on a connection. log receives what could not be freed
// at once; nil drops it.
func NewBus(conn *bus.Conn, log *slog.Logger) *Bus {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Bus{conn: conn, log: log, keys: map[artifactName]bus.CatalogKey{}}
}

// again repeats do while it meets concurrent changes.
func again(ctx context.Context, do func() error) error {
	for n := 1; ; n++ {
		err := do()
		if !errors.Is(err, bus.ErrConflict) {
			return err
		}
		most := min(time.Duration(n)*2*conflictPauseMin, conflictPauseMax)
		t := time.NewTimer(conflictPauseMin + rand.N(most)) //nolint:gosec // jitter
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return errors.Join(ctx.Err(), err)
		}
	}
}

// object reads an object's record; the revision is also right when there is none.
func (s *Bus) object(ctx context.Context, id string) (*Object, bus.CatalogKey, bus.Revision, error) {
	key, err := bus.CatalogObject(id)
	if err != nil {
		return nil, key, 0, fmt.Errorf("%w: firmware object: %w", ErrInvalid, err)
	}
	o := &Object{}
	rev, err := s.conn.CatalogEntry(ctx, key, o)
	if errors.Is(err, bus.ErrNotFound) {
		err = objectNotFound(id)
	}
	return o, key, rev, err
}

// Create implements Objects.
func (s *Bus) Create(ctx context.Context, o NewObject) (*Object, error) {
	if o.ID == "" || o.HardwareType == "" {
		return nil, fmt.Errorf("%w: an object needs an id and a hardware type", ErrInvalid)
	}
	if _, err := bus.CatalogDefault(o.HardwareType); err != nil {
		return nil, fmt.Errorf("%w: hardware type: %w", ErrInvalid, err)
	}
	artifacts, err := pending(o.ID, false, o.Artifacts)
	if err != nil {
		return nil, err
	}
	writes, err := cacheWrites(o.ID, artifacts)
	if err != nil {
		return nil, err
	}
	// Looked up before anything is stored: most refusals end here.
	if _, _, _, err := s.object(ctx, o.ID); !errors.Is(err, ErrNotFound) {
		if err == nil {
			err = objectExists(o.ID)
		}
		return nil, err
	}
	r := newRecord(o)
	err = s.withContent(ctx, [][]byte{o.Manifest, o.Lookup}, func() error {
		return again(ctx, func() error {
			_, key, rev, err := s.object(ctx, o.ID)
			if err == nil {
				return objectExists(o.ID)
			}
			if !errors.Is(err, ErrNotFound) {
				return err
			}
			_, err = s.conn.CommitCatalog(ctx, append([]bus.CatalogWrite{{Key: key, Value: r, Expect: rev}}, writes...)...)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Find implements Objects.
func (s *Bus) Find(ctx context.Context, id string) (*Object, error) {
	o, _, _, err := s.object(ctx, id)
	if err != nil {
		return nil, err
	}
	return o, nil
}

// List implements Objects.
func (s *Bus) List(ctx context.Context, f Filter) ([]*Object, error) {
	var out []*Object
	err := s.conn.CatalogEntries(ctx, bus.CatalogObjects, func(e bus.CatalogEntry) error {
		o := &Object{}
		if err := e.Decode(o); err != nil {
			return err
		}
		if selected(o, f) {
			out = append(out, o)
		}
		return nil
	})
	newestObjectFirst(out)
	return out, err
}

// change changes one object by compare and set.
func (s *Bus) change(ctx context.Context, id string, do func(*Object)) (*Object, error) {
	var out *Object
	err := again(ctx, func() error {
		o, key, rev, err := s.object(ctx, id)
		if err != nil {
			return err
		}
		do(o)
		out = o
		_, err = s.conn.CommitCatalog(ctx, bus.CatalogWrite{Key: key, Value: o, Expect: rev})
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// SetAvailable implements Objects.
func (s *Bus) SetAvailable(ctx context.Context, id string, lookup []byte) (*Object, error) {
	var out *Object
	var old []byte
	err := s.withContent(ctx, [][]byte{lookup}, func() (err error) {
		out, err = s.change(ctx, id, func(o *Object) {
			old = o.GetLookupSha256()
			setAvailable(o, lookup)
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(old, out.GetLookupSha256()) {
		s.freeDigests(ctx, old)
	}
	return out, nil
}

// SetFailure implements Objects.
func (s *Bus) SetFailure(ctx context.Context, id, reason string) (*Object, error) {
	return s.change(ctx, id, func(o *Object) { setFailure(o, reason) })
}

// SetDownloadJob implements Objects.
func (s *Bus) SetDownloadJob(ctx context.Context, id, jobID string) (*Object, error) {
	return s.change(ctx, id, func(o *Object) { setDownloadJob(o, jobID) })
}

// RetryDownload implements Objects.
func (s *Bus) RetryDownload(ctx context.Context, id string) (int, error) {
	n := 0
	err := again(ctx, func() error {
		o, key, rev, err := s.object(ctx, id)
		if err != nil {
			return err
		}
		setFailure(o, "")
		writes := []bus.CatalogWrite{{Key: key, Value: o, Expect: rev}}
		stored, err := s.cache(ctx, id)
		if err != nil {
			return err
		}
		for _, a := range stored {
			if retry(a.Artifact) {
				writes = append(writes, bus.CatalogWrite{Key: a.key, Value: a.Artifact, Expect: a.rev})
			}
		}
		n = len(writes) - 1
		_, err = s.conn.CommitCatalog(ctx, writes...)
		return err
	})
	return n, err
}

// SetDefault implements Objects.
func (s *Bus) SetDefault(ctx context.Context, id string) (*Object, error) {
	return s.makeDefault(ctx, id, true)
}

// SetDefaultIfNone implements Objects.
func (s *Bus) SetDefaultIfNone(ctx context.Context, id string) (*Object, error) {
	return s.makeDefault(ctx, id, false)
}

// makeDefault changes the default of a hardware type and both objects in one
// step. Writers of one hardware type meet at its key.
func (s *Bus) makeDefault(ctx context.Context, id string, replace bool) (*Object, error) {
	var out *Object
	err := again(ctx, func() error {
		o, key, rev, err := s.object(ctx, id)
		if err != nil {
			return err
		}
		out = o
		slot, former, slotRev, err := s.defaultOf(ctx, o.GetHardwareType())
		if err != nil {
			return err
		}
		if former != "" && !replace {
			return nil
		}
		setDefault(o, true)
		writes := []bus.CatalogWrite{
			{Key: slot, Value: &rackbusv1.FirmwareDefault{V: recordVersion, ObjectId: id}, Expect: slotRev},
			{Key: key, Value: o, Expect: rev},
		}
		if former != "" && former != id {
			old, oldKey, oldRev, err := s.object(ctx, former)
			if errors.Is(err, ErrNotFound) {
				return fmt.Errorf("default of %s: %w", o.GetHardwareType(), bus.ErrConflict) // removed just now
			}
			if err != nil {
				return err
			}
			setDefault(old, false)
			writes = append(writes, bus.CatalogWrite{Key: oldKey, Value: old, Expect: oldRev})
		}
		_, err = s.conn.CommitCatalog(ctx, writes...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// defaultOf reads which object is the default of a hardware type; none is "".
func (s *Bus) defaultOf(ctx context.Context, hardwareType string) (bus.CatalogKey, string, bus.Revision, error) {
	key, err := bus.CatalogDefault(hardwareType)
	if err != nil {
		return key, "", 0, fmt.Errorf("%w: hardware type: %w", ErrInvalid, err)
	}
	var d rackbusv1.FirmwareDefault
	rev, err := s.conn.CatalogEntry(ctx, key, &d)
	if errors.Is(err, bus.ErrNotFound) {
		return key, "", rev, nil
	}
	return key, d.GetObjectId(), rev, err
}

// FindDefault implements Objects.
func (s *Bus) FindDefault(ctx context.Context, hardwareType string) (*Object, error) {
	for {
		_, id, _, err := s.defaultOf(ctx, hardwareType)
		if err != nil {
			return nil, err
		}
		if id == "" {
			return nil, defaultNotFound(hardwareType)
		}
		o, err := s.Find(ctx, id)
		// An object goes together with its slot, so a missing one was removed after
		// the slot was read.
		if !errors.Is(err, ErrNotFound) && (err != nil || o.GetIsDefault()) {
			return o, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// Delete implements Objects.
func (s *Bus) Delete(ctx context.Context, id string) error {
	var digests [][]byte
	err := again(ctx, func() error {
		o, key, rev, err := s.object(ctx, id)
		if err != nil {
			return err
		}
		digests = [][]byte{o.GetConfigSha256(), o.GetLookupSha256()}
		writes := []bus.CatalogWrite{{Key: key, Expect: rev}}
		slot, former, slotRev, err := s.defaultOf(ctx, o.GetHardwareType())
		if err != nil {
			return err
		}
		if former == id {
			writes = append(writes, bus.CatalogWrite{Key: slot, Expect: slotRev})
		}
		stored, err := s.cache(ctx, id)
		if err != nil {
			return err
		}
		for _, a := range stored {
			// Only a change by compare and set follows, which then finds nothing.
			writes = append(writes, bus.CatalogWrite{Key: a.key, Blind: true})
			digests = append(digests, a.GetSha256())
		}
		_, err = s.conn.CommitCatalog(ctx, writes...)
		return err
	})
	if err != nil {
		return err
	}
	s.freeDigests(ctx, digests...)
	return nil
}

// Manifest implements Objects.
func (s *Bus) Manifest(ctx context.Context, id string) ([]byte, error) {
	return s.contentOf(ctx, id, (*Object).GetConfigSha256)
}

// Lookup implements Objects.
func (s *Bus) Lookup(ctx context.Context, id string) ([]byte, error) {
	return s.contentOf(ctx, id, (*Object).GetLookupSha256)
}

func (s *Bus) contentOf(ctx context.Context, id string, digest func(*Object) []byte) ([]byte, error) {
	o, err := s.Find(ctx, id)
	if err != nil || len(digest(o)) == 0 {
		return nil, err
	}
	data, err := s.content(ctx, digest(o))
	if errors.Is(err, bus.ErrNotFound) {
		// Replaced or removed meanwhile; the record tells which.
		if o, err = s.Find(ctx, id); err == nil {
			data, err = s.content(ctx, digest(o))
		}
	}
	return data, err
}
