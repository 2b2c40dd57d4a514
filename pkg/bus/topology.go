// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rackbus/rackbus/pkg/node"
)

// Partitions is the number of event partitions. It is fixed for an
// installation: the partition of a job follows from its id.
const Partitions = 8

// Stream names.
const (
	streamState       = "KV_rb"
	streamEvents      = "RB_EVT"
	streamSessions    = "KV_rb_sess"
	streamCheckpoints = "KV_rb_ckpt"
	streamInventory   = "KV_rb_inv"
	streamCatalog     = "KV_rb_fw"
	streamBlobs       = "OBJ_rb_fw"
	streamEvidence    = "OBJ_rb_evidence"
	streamPublic      = "RACKBUS_EVENTS"
	streamAudit       = "RB_AUDIT"
	streamAdvisories  = "RB_ADV"
)

const timersConsumer = "jobs-timers"

// Limits and retention that belong to the installation, not to a caller.
const (
	eventsMaxAge   = 7 * 24 * time.Hour
	eventsMaxBytes = 20 << 30
	publicMaxAge   = 7 * 24 * time.Hour
	publicMaxBytes = 4 << 30
	auditMaxAge    = 90 * 24 * time.Hour
	auditMaxBytes  = 8 << 30
	// evidenceMaxAge is how long evidence stays that no job's retention has removed.
	evidenceMaxAge   = 30 * 24 * time.Hour
	dedupWindow      = 10 * time.Minute
	stateDedupWindow = 2 * time.Minute
	// maxAckPending must exceed the running jobs of a family: a running job is
	// an unacknowledged command. The broker's default is 1,000.
	maxAckPending      = 20_000
	timerAckWait       = 30 * time.Second
	timerMaxAckPending = 1_000
)

// commandFamilies have agents of their own; those of racks run in the jobs service.
var commandFamilies = []node.Family{node.FamilyCompute, node.FamilySwitch, node.FamilyPowerShelf, node.FamilyRack}

// streams returns every stream of an installation with the given replicas.
//
// The state stream must not limit its size with discard-new: the broker would
// then refuse updates of existing keys, and jobs could not be sealed any more.
// It has no delete-marker TTL either: the marker of an expired command would be
// delivered to the agents.
func streams(replicas int) []jetstream.StreamConfig {
	kv := func(name string, subjects ...string) jetstream.StreamConfig {
		return jetstream.StreamConfig{
			Name: name, Subjects: subjects,
			Retention: jetstream.LimitsPolicy, Storage: jetstream.FileStorage, Replicas: replicas,
			Discard: jetstream.DiscardOld, MaxMsgsPerSubject: 1,
			MaxMsgs: -1, MaxBytes: -1, MaxConsumers: -1, MaxMsgSize: -1,
			Duplicates: stateDedupWindow, AllowDirect: true, AllowRollup: true, AllowMsgTTL: true,
		}
	}
	log := func(name string, maxAge time.Duration, maxBytes int64, subjects ...string) jetstream.StreamConfig {
		return jetstream.StreamConfig{
			Name: name, Subjects: subjects,
			Retention: jetstream.LimitsPolicy, Storage: jetstream.FileStorage, Replicas: replicas,
			Discard: jetstream.DiscardOld, MaxMsgsPerSubject: -1,
			MaxMsgs: -1, MaxBytes: maxBytes, MaxAge: maxAge, MaxConsumers: -1, MaxMsgSize: -1,
			Duplicates: dedupWindow, AllowDirect: true, DenyDelete: true,
		}
	}

	state := kv(streamState, "$KV.rb.>", "rb.cmd.>", "rb.park.>", "rb.timer.>", "rb.fire.>", "rb.out.>")
	state.AllowMsgSchedules = true
	state.AllowAtomicPublish = true

	events := log(streamEvents, eventsMaxAge, eventsMaxBytes, subjEvtPrefix+">")
	events.AllowAtomicPublish = true
	events.DenyPurge = true

	sessions := kv(streamSessions, subjSessPrefix+">")
	sessions.SubjectDeleteMarkerTTL = time.Minute

	checkpoints := kv(streamCheckpoints, subjCkptPrefix+">")
	checkpoints.AllowAtomicPublish = true

	inventory := kv(streamInventory, "$KV.rb_inv.>")
	inventory.AllowAtomicPublish = true

	catalog := kv(streamCatalog, "$KV.rb_fw.>")
	catalog.AllowAtomicPublish = true

	// The layout of a NATS object store, so that `nats object` reads it. Chunks
	// share the subject of their blob and must never be dropped for others.
	blobs := kv(streamBlobs, subjBlobChunk+">", subjBlobMeta+">")
	blobs.MaxMsgsPerSubject, blobs.Discard, blobs.AllowMsgTTL = -1, jetstream.DiscardNew, false

	evidence := kv(streamEvidence, subjEvidenceChunk+">", subjEvidenceMeta+">")
	evidence.MaxMsgsPerSubject, evidence.AllowMsgTTL, evidence.MaxAge = -1, false, evidenceMaxAge

	public := log(streamPublic, publicMaxAge, publicMaxBytes, subjPublicPrefix+">")
	public.AllowAtomicPublish = true

	// Nobody removes single records, not even an operator of the broker by mistake.
	audit := log(streamAudit, auditMaxAge, auditMaxBytes, subjAuditPrefix+">")
	audit.DenyPurge = true

	advisories := log(streamAdvisories, eventsMaxAge, 64<<20,
		"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.KV_rb.>",
		"$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.KV_rb.>",
		"$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.KV_rb")
	return []jetstream.StreamConfig{state, events, sessions, checkpoints, inventory, catalog, blobs, evidence, public, advisories, audit}
}

// consumers returns the durable consumers of the state stream.
//
// MaxDeliver stays unlimited, because a message that reaches it is never
// offered again and nobody would seal its job; attempts are counted in the
// checkpoint instead.
func consumers(t Timing) []jetstream.ConsumerConfig {
	out := make([]jetstream.ConsumerConfig, 0, len(commandFamilies)+1)
	for _, f := range commandFamilies {
		out = append(out, jetstream.ConsumerConfig{
			Durable: commandConsumer(f), FilterSubject: subjCmdPrefix + string(f) + ".>",
			DeliverPolicy: jetstream.DeliverAllPolicy, AckPolicy: jetstream.AckExplicitPolicy,
			AckWait: t.AckWait, MaxDeliver: -1, MaxAckPending: maxAckPending,
			ReplayPolicy: jetstream.ReplayInstantPolicy,
		})
	}
	return append(out, jetstream.ConsumerConfig{
		Durable: timersConsumer, FilterSubject: subjFirePrefix + ">",
		DeliverPolicy: jetstream.DeliverAllPolicy, AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: timerAckWait, MaxDeliver: -1, MaxAckPending: timerMaxAckPending,
		ReplayPolicy: jetstream.ReplayInstantPolicy,
	})
}

func commandConsumer(f node.Family) string { return "agent-" + string(f) }
