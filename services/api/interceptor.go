// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/rackbus/rackbus/services/api/internal/jobview"
)

// unary logs a call, turns errors into statuses, and survives its panic.
func (s *Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	start := time.Now()
	ctx = withNotes(ctx)
	defer func() {
		if p := recover(); p != nil {
			resp, err = nil, s.panicked(ctx, info.FullMethod, p)
		}
		reason, _ := notesOf(ctx)
		s.logCall(ctx, info.FullMethod, start, reason, err)
		err = asStatus(err)
	}()
	resp, err = handler(ctx, req)
	return resp, statusError(err)
}

// stream does for streams what unary does for calls.
func (s *Server) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	start := time.Now()
	ctx := ss.Context()
	defer func() {
		if p := recover(); p != nil {
			err = s.panicked(ctx, info.FullMethod, p)
		}
		s.logCall(ctx, info.FullMethod, start, "", err)
		err = asStatus(err)
	}()
	return statusError(handler(srv, ss))
}

// asStatus leaves nothing of the error but what the caller may see.
func asStatus(err error) error {
	if err == nil {
		return nil
	}
	return status.Convert(err).Err()
}

func (s *Server) panicked(ctx context.Context, method string, p any) error {
	s.log.ErrorContext(ctx, "call panicked", "op", method, "err", p, "stack", string(debug.Stack()))
	return errorf(CodeInternal, "internal error; see the log of the service")
}

// betweenLives reports that a call found no more than a replica that has just
// begun, or is about to end.
func (s *Server) betweenLives(err error) bool {
	select {
	case <-s.stopped:
		return true
	default:
		return errors.Is(err, jobview.ErrNotReady)
	}
}

// logCall writes one line per call, without anything of its body but the reason
// of a failure that the published answer has no field for.
func (s *Server) logCall(ctx context.Context, method string, start time.Time, reason string, err error) {
	code := status.Code(err)
	attrs := []slog.Attr{
		slog.String("op", method), slog.String("code", code.String()),
		slog.Duration("took", time.Since(start).Round(time.Microsecond)), slog.String("peer", callerOf(ctx)),
	}
	level := slog.LevelInfo
	if reason != "" {
		attrs = append(attrs, slog.String("reason", reason))
	}
	if err != nil {
		attrs = append(attrs, slog.Any("err", err))
		if code == codes.Internal || code == codes.Unavailable && !s.betweenLives(err) {
			level = slog.LevelWarn
		}
	}
	s.log.LogAttrs(ctx, level, "call", attrs...)
}
