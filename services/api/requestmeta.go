// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"crypto/sha256"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/rackbus/rackbus/pkg/admission"
	"github.com/rackbus/rackbus/pkg/certs"
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

// onBusyForce is a policy of power operations that is not there yet.
const onBusyForce = "force"

// jobMeta is what metadata says about the jobs of a call.
type jobMeta struct {
	name     string
	deadline time.Time
	key      string
	onBusy   admission.OnBusy
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
	if err := refuseForce(ctx); err != nil {
		return m, err
	}
	onBusy := first(md, metaOnBusy)
	var ok bool
	if m.onBusy, ok = admission.ParseOnBusy(onBusy); !ok {
		return m, errorf(CodeInvalidArgument, "%s %q is not known; use refuse, queue or supersede", metaOnBusy, onBusy)
	}
	return m, nil
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

// refuseForce refuses the policy that would act beside a running job.
func refuseForce(ctx context.Context) error {
	md, _ := metadata.FromIncomingContext(ctx)
	if first(md, metaOnBusy) == onBusyForce {
		return errorf(CodeUnimplemented, "%s: %s is not supported by this version", metaOnBusy, onBusyForce)
	}
	return nil
}

func first(md metadata.MD, key string) string {
	if values := md.Get(key); len(values) > 0 {
		return values[0]
	}
	return ""
}

// callerOf names who calls, by the client certificate.
func callerOf(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return certs.UnknownPeer
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return certs.UnknownPeer
	}
	return certs.PeerIdentity(info.State.PeerCertificates[0])
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

// reasonKey finds where the log line of a call takes its reason from.
type reasonKey struct{}

// withReason returns a context in which tellReason also tells the log.
func withReason(ctx context.Context) (context.Context, *string) {
	told := new(string)
	return context.WithValue(ctx, reasonKey{}, told), told
}

// tellReason sends the reason of a failure in the trailer, for answers that have
// no field for it. It is called by the goroutine of the call.
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
	if told, ok := ctx.Value(reasonKey{}).(*string); ok {
		*told = clean
	}
	// It fails only outside of a call, where nobody listens.
	_ = grpc.SetTrailer(ctx, metadata.Pairs(metaReason, clean))
}
