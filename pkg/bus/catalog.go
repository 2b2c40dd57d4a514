// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"
)

// hdrOperation marks the message that stands for a removed key.
const hdrOperation = "KV-Operation"

// catalogTombstoneTTL is how long a removed entry of the catalogue is remembered,
// so that whoever watches it learns of the removal.
const catalogTombstoneTTL = time.Hour

// CatalogKey names one entry of the firmware catalogue.
type CatalogKey struct{ subject string }

// String returns the subject of the entry.
func (k CatalogKey) String() string { return k.subject }

// CatalogRange names the entries of one kind, or the artifacts of one cache.
type CatalogRange struct{ filter string }

// Ranges of the catalogue.
var (
	CatalogObjects   = CatalogRange{subjFwObject + ">"}
	CatalogArtifacts = CatalogRange{subjFwArtifact + ">"}
	CatalogHistory   = CatalogRange{subjFwHistory + ">"}
	CatalogPlans     = CatalogRange{subjFwPlan + ">"}
)

// CatalogObject is the key of a firmware object. Errors wrap ErrBadID.
func CatalogObject(id string) (CatalogKey, error) { return catalogKey(subjFwObject, id) }

// CatalogDefault is the key of the default object of a hardware type. Errors
// wrap ErrBadID.
func CatalogDefault(hardwareType string) (CatalogKey, error) {
	return catalogKey(subjFwDefault, hardwareType)
}

// CatalogApply is the key of one line of the apply history.
func CatalogApply(id string) (CatalogKey, error) { return catalogKey(subjFwHistory, id) }

// CatalogPlan is the key of a frozen plan. Errors wrap ErrBadID.
func CatalogPlan(id string) (CatalogKey, error) { return catalogKey(subjFwPlan, id) }

// CatalogArtifact is the key of the n-th artifact of a cache. Errors wrap
// ErrBadID.
func CatalogArtifact(cache string, n int) (CatalogKey, error) {
	k, err := catalogKey(subjFwArtifact, cache)
	if err != nil {
		return CatalogKey{}, err
	}
	return CatalogKey{fmt.Sprintf("%s.%04d", k.subject, n)}, nil
}

// CatalogCache is the range of the artifacts of one cache. Errors wrap ErrBadID.
func CatalogCache(cache string) (CatalogRange, error) {
	k, err := catalogKey(subjFwArtifact, cache)
	return CatalogRange{k.subject + ".*"}, err
}

func catalogKey(prefix, id string) (CatalogKey, error) {
	token, err := Token(id)
	return CatalogKey{prefix + token}, err
}

// CatalogEntry is one entry as it is stored.
type CatalogEntry struct {
	Key      CatalogKey
	Revision Revision
	data     []byte
	// Removed says that the entry is gone.
	Removed bool
}

// Decode reads the entry's value into v.
func (e CatalogEntry) Decode(v proto.Message) error {
	if err := proto.Unmarshal(e.data, v); err != nil {
		return fmt.Errorf("decode %s: %w", e.Key, err)
	}
	return nil
}

// CatalogEntry reads one entry at the leader into v. It wraps ErrNotFound when
// there is none; the revision is then the one a new entry has to expect.
func (c *Conn) CatalogEntry(ctx context.Context, key CatalogKey, v proto.Message) (Revision, error) {
	return c.getProto(ctx, streamCatalog, key.subject, v)
}

// CatalogEntries gives every entry of a range to each, in no order. What was
// written before the call is seen.
func (c *Conn) CatalogEntries(ctx context.Context, r CatalogRange, each func(CatalogEntry) error) error {
	rctx, cancel := c.requestContext(ctx)
	s, err := c.js.Stream(rctx, streamCatalog)
	cancel()
	if err != nil {
		return classify("list "+r.filter, err, false)
	}
	subjects, err := c.listSubjects(ctx, streamCatalog, r.filter)
	if err != nil {
		return err
	}
	atLeast := Revision(s.CachedInfo().State.LastSeq)
	for start := 0; start < len(subjects); start += multiGetSubjects {
		found, err := c.multiGet(ctx, streamCatalog, subjects[start:min(start+multiGetSubjects, len(subjects))], atLeast)
		if err != nil {
			return err
		}
		for subject, got := range found {
			if got.expired() {
				continue
			}
			if err := each(CatalogEntry{Key: CatalogKey{subject}, Revision: got.rev, data: got.data}); err != nil {
				return err
			}
		}
	}
	return nil
}

// CatalogWrite is one change of the catalogue.
type CatalogWrite struct {
	Key CatalogKey
	// Value is the new value; nil removes the entry.
	Value proto.Message
	// Expect is the revision the entry must still have, unless Blind is set.
	Expect Revision
	// Blind changes the entry whatever it is now; for entries that only change
	// with another one of the same commit.
	Blind bool
	// TTL removes the entry after some time; 0 keeps it.
	TTL time.Duration
}

// CommitCatalog makes changes of the catalogue together or not at all. Errors
// are those of [Tx.Commit].
func (c *Conn) CommitCatalog(ctx context.Context, writes ...CatalogWrite) (Commit, error) {
	msgs := make([]*nats.Msg, len(writes))
	for i, w := range writes {
		m := newMessage(w.Key.subject, nil)
		if !w.Blind {
			expecting(w.Expect)(m)
		}
		ttl := w.TTL
		if w.Value == nil {
			m.Header.Set(hdrOperation, "DEL")
			ttl = catalogTombstoneTTL
		} else {
			data, err := proto.Marshal(w.Value)
			if err != nil {
				return Commit{}, fmt.Errorf("encode %s: %w", w.Key, err)
			}
			m.Data = data
		}
		setTTL(m, ttl)
		msgs[i] = m
	}
	return c.commitBatch(ctx, streamCatalog, msgs, 0)
}

// WatchCatalog gives every entry of a range to each, and then every change,
// until ctx ends or each returns an error. current is called once, when all that
// was stored at the beginning has been given.
func (c *Conn) WatchCatalog(ctx context.Context, r CatalogRange, each func(CatalogEntry) error, current func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cons, err := c.js.OrderedConsumer(ctx, streamCatalog, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{r.filter}, DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, InactiveThreshold: readerLife,
	})
	if err != nil {
		return classify("watch catalogue", err, false)
	}
	defer c.dropReader(streamCatalog, cons)
	info, err := cons.Info(ctx)
	if err != nil {
		return classify("watch catalogue", err, false)
	}
	seen := info.NumPending == 0
	if seen {
		current()
	}
	it, err := cons.Messages(jetstream.PullExpiry(pullExpiry), jetstream.PullHeartbeat(pullHeartbeat))
	if err != nil {
		return classify("watch catalogue", err, false)
	}
	defer it.Stop()
	stop := context.AfterFunc(ctx, it.Stop)
	defer stop()
	for {
		m, err := it.Next()
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return classify("watch catalogue", err, false)
		}
		meta, err := m.Metadata()
		if err != nil {
			return fmt.Errorf("watch catalogue: %w", err)
		}
		e := CatalogEntry{
			Key: CatalogKey{m.Subject()}, Revision: Revision(meta.Sequence.Stream), data: m.Data(),
			Removed: m.Headers().Get(hdrOperation) != "" || m.Headers().Get(hdrMarker) != "",
		}
		if err := each(e); err != nil {
			return err
		}
		if !seen && meta.NumPending == 0 {
			seen = true
			current()
		}
	}
}
