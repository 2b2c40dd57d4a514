// SPDX-License-Identifier: Apache-2.0

package coldreboot

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// gate is a stage that waits until all of its nodes are as they must be, in one
// and the same look.
type gate struct {
	nodes []target
	// floor passes before the first look; limit counts from there on.
	floor, limit time.Duration
	passed       func(reading) bool
}

// gate returns how a gate is waited for. Whoever takes over goes on with the waits
// as they were begun; one look is taken even when all time is over.
func (s *sequence) gate(stage string, of func() gate) func(context.Context) error {
	return func(ctx context.Context) error {
		g := of()
		//nolint:contextcheck // what cuts the stage does not keep its begin from being recorded
		entered, err := s.memory.enter(s.ctx, s.t, stage)
		if err != nil {
			return err
		}
		first := entered.Add(g.floor)
		if err := s.waitUntil(ctx, stage, first); err != nil {
			return err
		}
		end := first.Add(g.limit)
		for {
			last := !time.Now().Before(end)
			readings := s.lookAll(ctx, g.nodes)
			if err := context.Cause(ctx); err != nil {
				return s.cut(stage, err)
			}
			waiting := g.waiting(readings)
			if len(waiting) == 0 {
				return nil
			}
			if last {
				return s.timedOut(stage, g.limit, waiting)
			}
			next := time.Now().Add(s.timing.PollInterval)
			if next.After(end) {
				next = end
			}
			if err := s.waitUntil(ctx, stage, next); err != nil {
				return err
			}
		}
	}
}

// waiting tells what the nodes that hold up the gate read.
func (g *gate) waiting(readings []reading) []string {
	var out []string
	for i, r := range readings {
		if !g.passed(r) {
			out = append(out, g.nodes[i].GetNodeId()+" "+r.String())
		}
	}
	return out
}

func (s *sequence) timedOut(stage string, limit time.Duration, waiting []string) error {
	seconds := int64(limit / time.Second)
	return s.failed(stage, job.FailurePowerStateTimeout, fmt.Sprintf("%s timed out after %ds: %s", stage, seconds, strings.Join(waiting, "; ")),
		map[string]any{"timeout_seconds": seconds, "waiting": waiting}, nil)
}

func (s *sequence) waitUntil(ctx context.Context, stage string, at time.Time) error {
	if err := sleepUntil(ctx, at); err != nil {
		return s.cut(stage, err)
	}
	return nil
}

// awaitBoot is a fixed wait: nothing tells from outside whether a host has booted.
func (s *sequence) awaitBoot(ctx context.Context) error {
	//nolint:contextcheck // as in gate
	entered, err := s.memory.enter(s.ctx, s.t, stageBoot)
	if err != nil {
		return err
	}
	if err := s.waitUntil(ctx, stageBoot, entered.Add(s.timing.BootWait)); err != nil {
		return err
	}
	return s.memory.details(s.t, stageBoot, map[string]any{"waited_seconds": int64(s.timing.BootWait / time.Second)})
}

// awaitNVOS asks the switches until each has answered once.
func (s *sequence) awaitNVOS(ctx context.Context) error {
	pending := s.switches
	var reasons []string
	for attempt := 1; ; attempt++ {
		answers := make([]error, len(pending))
		s.each(pending, func(i int) { answers[i] = s.hello(ctx, pending[i]) })
		if err := context.Cause(ctx); err != nil {
			return s.cut(stageNVOS, err)
		}
		var silent []target
		reasons = reasons[:0]
		for i, err := range answers {
			if err != nil {
				silent = append(silent, pending[i])
				reasons = append(reasons, fmt.Sprintf("%s: %v", pending[i].GetNodeId(), err))
			}
		}
		if pending = silent; len(pending) == 0 {
			return s.memory.details(s.t, stageNVOS, map[string]any{"attempts": attempt})
		}
		if attempt == helloAttempts {
			break
		}
		if err := s.waitUntil(ctx, stageNVOS, time.Now().Add(s.timing.HelloBackoff<<(attempt-1))); err != nil {
			return err
		}
	}
	ids := make([]string, len(pending))
	for i := range pending {
		ids[i] = pending[i].GetNodeId()
	}
	return s.failed(stageNVOS, job.FailureSwitchNotReady, fmt.Sprintf(
		"switch NVOS not ready: nvue hello failed after %d attempts; unresponsive switches: %s", helloAttempts, strings.Join(ids, ", ")),
		map[string]any{"attempts": helloAttempts, "unresponsive_switches": ids, "failures": reasons}, nil)
}

// hello asks whether the network operating system of a switch answers.
func (s *sequence) hello(ctx context.Context, n target) error {
	reply, err := s.request(ctx, n, opNVOSHello, &rackbusv1.NodeRequest{Domain: s.domain}, time.Now().Add(s.timing.ProbeLimit))
	if err != nil {
		return errors.New(askedText(n.family, err))
	}
	if e := reply.GetError(); e != nil {
		return errors.New(errorText(e))
	}
	return nil
}
