// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Goals of the comparisons: throughput through Rackbus over throughput direct.
const (
	goalPower     = 0.7
	goalInventory = 0.9
)

// Rounds of a comparison. Small sweeps are over in no time, so they are repeated
// more often.
const (
	roundCalls = 3000
	minRounds  = 2
	maxRounds  = 3
)

// coolDown is the pause before a round that shall open its connections anew:
// both sides close idle ones after idleConnections.
const coolDown = idleConnections + 500*time.Millisecond

// Connections of a round.
const (
	// connectionsNew: every call opens its own, as when a fleet is polled now and
	// then. TLS sessions are resumed.
	connectionsNew = "new"
	// connectionsKept: rounds follow each other, so that calls find the
	// connection of the round before.
	connectionsKept = "kept"
)

// comparison is one operation on one number of nodes, both ways.
type comparison struct {
	Part        string  `json:"part"`
	Operation   string  `json:"operation"`
	Nodes       int     `json:"nodes"`
	Connections string  `json:"connections"`
	Rackbus     reading `json:"rackbus"`
	Direct      reading `json:"direct"`
	Ratio       float64 `json:"throughput_ratio"`
	Goal        float64 `json:"goal_at_least"`
}

func (c *comparison) met() bool { return c.Ratio >= c.Goal }

// reads measures one operation of a running rack and server.
type reads struct {
	part, operation string
	goal            float64
	concurrency     int
	rack            *rack
	server          *server
	rackbus, direct func(ctx context.Context, node int) error
}

func runReads(ctx context.Context, s *settings, dir string, r *report) error {
	most := 0
	if s.wants("a") {
		most = slices.Max(s.power)
	}
	if s.wants("b") {
		most = max(most, s.inventory)
	}
	dir = filepath.Join(dir, "reads")
	rack, err := startRack(ctx, s.bin, dir, most)
	if err != nil {
		return err
	}
	defer rack.Stop()
	server, err := startServer(ctx, s.bin, dir, filepath.Join(dir, "firmware"), most)
	if err != nil {
		return err
	}
	defer server.Stop()
	c, err := dial(server, rack.nodes)
	if err != nil {
		return err
	}
	defer c.close()
	if r.Registration, err = c.register(ctx); err != nil {
		return err
	}
	r.printRegistration(os.Stdout, most)
	plain := newDirect(rack.nodes)
	defer plain.close()
	if s.wants("a") {
		m := &reads{"a", "GetPowerState", goalPower, s.concurrency, rack, server, c.power, plain.power}
		for _, n := range s.power {
			if err := m.compare(ctx, n, r); err != nil {
				return fmt.Errorf("part a, %d nodes: %w", n, err)
			}
		}
	}
	if s.wants("b") {
		m := &reads{"b", "GetNodeFirmwareInventory", goalInventory, s.concurrency, rack, server, c.inventory, plain.inventory}
		if err := m.compare(ctx, s.inventory, r); err != nil {
			return fmt.Errorf("part b: %w", err)
		}
	}
	return nil
}

// compare measures rounds of both ways in turn, after one that is not counted.
func (m *reads) compare(ctx context.Context, nodes int, r *report) error {
	slowest := time.Duration(0)
	for _, call := range []func(context.Context, int) error{m.rackbus, m.direct} {
		first, err := sweepNodes(ctx, nodes, m.concurrency, call)
		if err != nil {
			return err
		}
		slowest = max(slowest, first.elapsed)
	}
	kinds := []string{connectionsNew}
	if slowest < idleConnections/2 {
		kinds = append(kinds, connectionsKept)
	}
	for _, kind := range kinds {
		c := comparison{Part: m.part, Operation: m.operation, Nodes: nodes, Connections: kind, Goal: m.goal}
		var err error
		if c.Rackbus, c.Direct, err = m.rounds(ctx, nodes, kind); err != nil {
			return err
		}
		c.Ratio = c.Rackbus.PerSecond / c.Direct.PerSecond
		r.Reads = append(r.Reads, c)
		r.printReads(os.Stdout, &c)
	}
	return nil
}

// rounds alternates between both ways, so that a disturbance from outside hits
// both.
func (m *reads) rounds(ctx context.Context, nodes int, kind string) (rackbus, direct reading, err error) {
	rounds := min(maxRounds, max(minRounds, roundCalls/nodes))
	repeat := 1
	if kind == connectionsKept {
		repeat = max(2, roundCalls/nodes/rounds)
	}
	sides := [2]side{{call: m.rackbus}, {call: m.direct}}
	for range rounds {
		for i := range sides {
			if err := rest(ctx, coolDown); err != nil {
				return reading{}, reading{}, err
			}
			if kind == connectionsKept {
				// This round opens what the counted ones keep.
				if _, err := sweepNodes(ctx, nodes, m.concurrency, sides[i].call); err != nil {
					return reading{}, reading{}, err
				}
			}
			if err := m.measure(ctx, &sides[i], nodes, repeat); err != nil {
				return reading{}, reading{}, err
			}
		}
	}
	return sides[0].reading(), sides[1].reading(), nil
}

// side is one of the two ways.
type side struct {
	call   func(ctx context.Context, node int) error
	sweeps []sweep
	cpu    cpuPerCall
}

func (m *reads) measure(ctx context.Context, s *side, nodes, repeat int) error {
	before, err := m.cpu()
	if err != nil {
		return err
	}
	for range repeat {
		done, err := sweepNodes(ctx, nodes, m.concurrency, s.call)
		if err != nil {
			return err
		}
		s.sweeps = append(s.sweeps, done)
	}
	after, err := m.cpu()
	if err != nil {
		return err
	}
	s.cpu.Bench += after.Bench - before.Bench
	s.cpu.Rackbus += after.Rackbus - before.Rackbus
	s.cpu.Racksim += after.Racksim - before.Racksim
	return nil
}

// cpu is what each process has used so far.
func (m *reads) cpu() (cpuPerCall, error) {
	own, err := usageOf(os.Getpid())
	if err != nil {
		return cpuPerCall{}, err
	}
	rackbus, err := m.server.usage()
	if err != nil {
		return cpuPerCall{}, err
	}
	sim, err := m.rack.usage()
	return cpuPerCall{Bench: own.CPU, Rackbus: rackbus.CPU, Racksim: sim.CPU}, err
}

func (s *side) reading() reading {
	r := sum(s.sweeps)
	n := time.Duration(r.Calls)
	r.CPU = cpuPerCall{Bench: s.cpu.Bench / n, Rackbus: s.cpu.Rackbus / n, Racksim: s.cpu.Racksim / n}
	return r
}

func rest(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
