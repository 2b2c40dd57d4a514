// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"crypto/sha256"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/rackbus/rackbus/pkg/admission"
	"github.com/rackbus/rackbus/pkg/job"
)

// Request metadata that callers may send along with a call.
const (
	metaJobName        = "rackbus-job-name"
	metaDeadline       = "rackbus-deadline"
	metaIdempotencyKey = "rackbus-idempotency-key"
	metaOnBusy         = "rackbus-on-busy"
	// metaReason is a trailer of answers whose published form has no room for
	// the reason of a failure.
	metaReason = "rackbus-reason"
)

// Bounds of what metadata may hold.
const (
	maxJobName        = 200
	maxIdempotencyKey = 256
	maxReason         = 1024
)

// onBusyForce is a policy of power operations only: act beside the job that holds
// the node.
const onBusyForce = "force"

// jobMeta is what metadata says about the jobs of a call.
type jobMeta struct {
	name     string
	deadline time.Time
	key      string
	onBusy   admission.OnBusy
	rollout  *job.RolloutPlan
}

// jobMetaOf reads the metadata of a call that creates jobs.
func jobMetaOf(ctx context.Context, now time.Time) (jobMeta, error) {
	var m jobMeta
	md, _ := metadata.FromIncomingContext(ctx)
	m.name = strings.TrimSpace(first(md, metaJobName))
	if len(m.name) > maxJobName {
		return m, errorf(CodeInvalidArgument, "%s is longer than %d bytes", metaJobName, maxJobName)
	}
	m.key = first(md, metaIdempotencyKey)
	if len(m.key) > maxIdempotencyKey {
		return m, errorf(CodeInvalidArgument, "%s is longer than %d bytes", metaIdempotencyKey, maxIdempotencyKey)
	}
	var err error
	if m.deadline, err = parseDeadline(first(md, metaDeadline), now); err != nil {
		return m, err
	}
	onBusy := first(md, metaOnBusy)
	var ok bool
	if m.onBusy, ok = admission.ParseOnBusy(onBusy); !ok {
		return m, errorf(CodeInvalidArgument, "%s %q is not known; use refuse, queue or supersede", metaOnBusy, onBusy)
	}
	m.rollout, err = parseRollout(md, m.onBusy)
	return m, err
}

// parseDeadline reads a moment (RFC 3339) or a time from now ("90m").
func parseDeadline(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		d, derr := time.ParseDuration(text)
		if derr != nil {
			return time.Time{}, errorf(CodeInvalidArgument,
				"%s %q is neither a moment (RFC 3339) nor a duration such as 90m", metaDeadline, text)
		}
		at = now.Add(d)
	}
	if !at.After(now) {
		return time.Time{}, errorf(CodeInvalidArgument, "%s %q has passed", metaDeadline, text)
	}
	return at, nil
}

func first(md metadata.MD, key string) string {
	if values := md.Get(key); len(values) > 0 {
		return values[0]
	}
	return ""
}

// idempotency identifies a call with a key. The digest leaves secrets out: it is
// stored, and must not help to guess a password.
func (m jobMeta) idempotency(ctx context.Context, rpc string, req proto.Message) (admission.Idempotency, error) {
	if m.key == "" {
		return admission.Idempotency{}, nil
	}
	clean := proto.Clone(req)
	clearSecrets(clean.ProtoReflect())
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(clean)
	if err != nil {
		return admission.Idempotency{}, &Error{CodeInternal, "the request could not be encoded", err}
	}
	if m.rollout != nil {
		data = append(data, m.rollout.String()...)
	}
	sum := sha256.Sum256(data)
	return admission.Idempotency{Caller: callerOf(ctx), RPC: rpc, Key: m.key, Digest: sum[:]}, nil
}

// clearSecrets empties every field of the message that carries a secret.
func clearSecrets(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Name() == "password" || f.Name() == "session_token" || f.Name() == "access_token":
			m.Clear(f)
		case f.IsMap():
			if f.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
					clearSecrets(v.Message())
					return true
				})
			}
		case f.Message() == nil:
		case f.IsList():
			for i := range v.List().Len() {
				clearSecrets(v.List().Get(i).Message())
			}
		default:
			clearSecrets(v.Message())
		}
		return true
	})
}

// tellReason sends the reason of a failure in the trailer, for answers that have
// no field for it. It is called by the goroutine of the call. Of many reasons the first
// ones are sent, up to maxReason bytes.
func tellReason(ctx context.Context, reason string) {
	clean := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, reason)
	if len(clean) > maxReason {
		clean = clean[:maxReason]
	}
	if n, ok := ctx.Value(notesKey{}).(*notes); ok && !n.setReason(clean) {
		return
	}
	// It fails only outside of a call, where nobody listens.
	_ = grpc.SetTrailer(ctx, metadata.Pairs(metaReason, clean))
}
