// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
)

// maxTokenBytes bounds an encoded rack or node id, so that subjects stay far
// below the broker's limit.
const maxTokenBytes = 128

// noNode stands where a job has no node.
const noNode = "="

// ErrBadID is wrapped by every refusal of a rack or node id.
var ErrBadID = errors.New("bus: unusable id")

// Token turns a rack or node id into one subject token. Letters, digits, '-'
// and '_' stay; every other byte becomes '=' and two hex digits, so any id
// survives and different ids stay different. Empty ids and ids whose token
// exceeds 128 bytes are refused with ErrBadID.
func Token(id string) (string, error) {
	if id == "" {
		return "", fmt.Errorf("%w: it is empty", ErrBadID)
	}
	t := encodeToken(id)
	if len(t) > maxTokenBytes {
		return "", fmt.Errorf("%w: %q takes %d bytes encoded, at most %d are possible", ErrBadID, id, len(t), maxTokenBytes)
	}
	return t, nil
}

// CheckRef tells whether a node can be addressed on the bus.
func CheckRef(r node.Ref) error {
	if _, err := Token(r.RackID); err != nil {
		return fmt.Errorf("rack id: %w", err)
	}
	if _, err := Token(r.NodeID); err != nil {
		return fmt.Errorf("node id: %w", err)
	}
	return nil
}

// DecodeToken reverses Token.
func DecodeToken(token string) (string, error) {
	if !strings.Contains(token, "=") {
		return token, nil
	}
	var b strings.Builder
	for i := 0; i < len(token); i++ {
		if token[i] != '=' {
			b.WriteByte(token[i])
			continue
		}
		if i+2 >= len(token) {
			return "", fmt.Errorf("%w: token %q ends inside an escape", ErrBadID, token)
		}
		v, err := strconv.ParseUint(token[i+1:i+3], 16, 8)
		if err != nil {
			return "", fmt.Errorf("%w: token %q has a bad escape", ErrBadID, token)
		}
		b.WriteByte(byte(v))
		i += 2
	}
	return b.String(), nil
}

func encodeToken(id string) string {
	const hexDigits = "0123456789ABCDEF"
	plain := true
	for i := 0; i < len(id); i++ {
		if !tokenByte(id[i]) {
			plain = false
			break
		}
	}
	if plain {
		return id
	}
	var b strings.Builder
	b.Grow(len(id) + 8)
	for i := 0; i < len(id); i++ {
		c := id[i]
		if tokenByte(c) {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('=')
		b.WriteByte(hexDigits[c>>4])
		b.WriteByte(hexDigits[c&15])
	}
	return b.String()
}

func tokenByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}

// nodeToken is the token of a node id, or '=' where a job has none.
func nodeToken(id string) string {
	if id == "" {
		return noNode
	}
	return encodeToken(id)
}

// TimerKind is what a timer of the state stream is armed for.
type TimerKind string

// The timers. Each is one per job.
const (
	// TimerDeadline ends a job that waits or runs too long.
	TimerDeadline TimerKind = "deadline"
	// TimerAdmit closes an admission whose API process died between chunks.
	TimerAdmit TimerKind = "admit"
	// TimerReap removes a job family when its retention ends.
	TimerReap TimerKind = "reap"
	// TimerCancel drives a cancellation until the worker has confirmed it.
	TimerCancel TimerKind = "cancel"
	// TimerRollout begins the next wave of a batch, and does what else it needs.
	TimerRollout TimerKind = "rollout"
	// TimerDiagnose has the node of a failed job examined.
	TimerDiagnose TimerKind = "diagnose"
	// TimerCleanup removes what a top-level job that has ended leaves behind.
	TimerCleanup TimerKind = "cleanup"
)

// Subjects of the state stream.
const (
	subjCapacity     = "$KV.rb.cap"
	subjJobPrefix    = "$KV.rb.job."
	subjAdmPrefix    = "$KV.rb.adm."
	subjLockPrefix   = "$KV.rb.node."
	subjRackPrefix   = "$KV.rb.rack."
	subjCursorPrefix = "$KV.rb.fold."
	subjGonePrefix   = "$KV.rb.gone."
	subjIdemPrefix   = "$KV.rb.idem."
	subjCmdPrefix    = "rb.cmd."
	subjParkPrefix   = "rb.park."
	subjTimerPrefix  = "rb.timer."
	subjFirePrefix   = "rb.fire."
	subjOutPrefix    = "rb.out."
)

// Subjects outside the state stream.
const (
	subjEvtPrefix     = "rb.evt.v1."
	subjSessPrefix    = "$KV.rb_sess."
	subjCkptPrefix    = "$KV.rb_ckpt."
	subjInvRackPrefix = "$KV.rb_inv.rack."
	subjInvNodePrefix = "$KV.rb_inv.node."
	subjFwObject      = "$KV.rb_fw.obj."
	subjFwDefault     = "$KV.rb_fw.def."
	subjFwArtifact    = "$KV.rb_fw.art."
	subjFwHistory     = "$KV.rb_fw.hist."
	subjFwPlan        = "$KV.rb_fw.plan."
	subjBlobChunk     = "$O.rb_fw.C."
	subjBlobMeta      = "$O.rb_fw.M."
	subjEvidenceChunk = "$O.rb_evidence.C."
	subjEvidenceMeta  = "$O.rb_evidence.M."
	subjCtlPrefix     = "rb.ctl."
	subjReqPrefix     = "rb.req."
	subjPublicPrefix  = "rackbus.events."
	subjAuditPrefix   = "rb.audit.v1."
)

func recordSubject(id job.ID) string {
	return fmt.Sprintf("%s%s.%08x", subjJobPrefix, id.Prefix(), id.Index())
}

func familySubjects(id job.ID) string { return subjJobPrefix + id.Prefix() + ".*" }

func admissionSubject(id job.ID) string { return subjAdmPrefix + id.Prefix() }

func goneSubject(id job.ID) string { return subjGonePrefix + id.Prefix() }

func lockSubject(r node.Ref) string {
	return subjLockPrefix + encodeToken(r.RackID) + "." + nodeToken(r.NodeID)
}

func rackPowerSubject(rackID string) string { return subjRackPrefix + encodeToken(rackID) }

func cursorSubject(p int) string { return subjCursorPrefix + strconv.Itoa(p) }

func commandSubject(family node.Family, r node.Ref) string {
	return subjCmdPrefix + string(family) + "." + encodeToken(r.RackID) + "." + nodeToken(r.NodeID)
}

func parkSubject(r node.Ref, id job.ID) string {
	return subjParkPrefix + encodeToken(r.RackID) + "." + nodeToken(r.NodeID) + "." + id.String()
}

func timerSubject(k TimerKind, id job.ID) string {
	return subjTimerPrefix + string(k) + "." + id.String()
}

func fireSubject(k TimerKind, id job.ID) string {
	return subjFirePrefix + string(k) + "." + id.String()
}

func outboxSubject(p int, seq uint64) string {
	return subjOutPrefix + strconv.Itoa(p) + "." + strconv.FormatUint(seq, 10)
}

func eventSubject(p int, rackID, nodeID string, id job.ID, kind string) string {
	return subjEvtPrefix + strconv.Itoa(p) + "." + rackToken(rackID) + "." + nodeToken(nodeID) + "." + id.String() + "." + kind
}

func rackToken(id string) string {
	if id == "" {
		return noNode
	}
	return encodeToken(id)
}

func sessionSubject(family node.Family, session string) string {
	return subjSessPrefix + string(family) + "." + session
}

func foldLeaseSubject(p int) string { return subjSessPrefix + "fold." + strconv.Itoa(p) }

func checkpointSubject(family node.Family, id job.ID) string {
	return subjCkptPrefix + string(family) + "." + id.String()
}

func inventoryRackSubject(rackID string) string { return subjInvRackPrefix + encodeToken(rackID) }

func inventoryNodeSubject(r node.Ref) string {
	return subjInvNodePrefix + encodeToken(r.RackID) + "." + encodeToken(r.NodeID)
}

func cancelSubject(family node.Family, id job.ID) string {
	return subjCtlPrefix + string(family) + ".cancel." + id.String()
}

func requestSubject(family node.Family, op string) string {
	return subjReqPrefix + string(family) + "." + op
}

func publicSubject(rackID, nodeID string, id job.ID, typ, state string) string {
	return subjPublicPrefix + rackToken(rackID) + "." + nodeToken(nodeID) + "." + id.String() + "." + typ + "." + state
}
