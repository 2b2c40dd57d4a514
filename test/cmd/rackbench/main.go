// SPDX-License-Identifier: Apache-2.0

// Command rackbench measures Rackbus on this machine and prints every number
// beside that of a plain Go client doing the same to the same simulated devices:
//
//	a  GetPowerState of 100, 1,000 and 10,000 registered nodes
//	b  GetNodeFirmwareInventory of 1,000 registered nodes
//	c  BatchUpdateFirmware of 10,000 nodes whose update tasks take 60 s
//	d  how fast the jobs service turns events into records
//
// The devices are a racksim process and Rackbus is a `rackbus serve` process with
// its defaults: the embedded bus syncs every write and encrypts its store, and
// gRPC runs over mutual TLS. Run `make build` first.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// settings are the flags.
type settings struct {
	bin         string
	only        []string
	power       []int
	inventory   int
	update      int
	concurrency int
	task        time.Duration
	foldEvents  int
	json        string
	dir         string
}

// parts in the order they run.
var parts = [...]string{"a", "b", "c", "d"}

func main() {
	s, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "rackbench:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err = run(ctx, s)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "rackbench:", err)
		os.Exit(1)
	}
}

func parse(args []string) (*settings, error) {
	s := &settings{}
	var only, nodes string
	f := flag.NewFlagSet("rackbench", flag.ContinueOnError)
	f.StringVar(&s.bin, "bin", "bin", "directory of the programs")
	f.StringVar(&only, "only", strings.Join(parts[:], ","), "parts to run, separated by commas")
	f.StringVar(&nodes, "nodes", "100,1000,10000", "numbers of nodes of part a, separated by commas")
	f.IntVar(&s.inventory, "inventory-nodes", 1000, "nodes of part b")
	f.IntVar(&s.update, "update-nodes", 10_000, "nodes of part c")
	f.IntVar(&s.concurrency, "concurrency", 64, "calls at a time in parts a and b")
	f.DurationVar(&s.task, "task-duration", time.Minute, "how long a simulated update task of part c takes")
	f.IntVar(&s.foldEvents, "fold-events", 96_000, "events of part d")
	f.StringVar(&s.json, "json", "", "file that gets all numbers as JSON")
	f.StringVar(&s.dir, "dir", "", "directory for data and logs, kept afterwards; default is a temporary one")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	for _, p := range strings.Split(only, ",") {
		if !slices.Contains(parts[:], p) {
			return nil, fmt.Errorf("-only %q: there is no part %q", only, p)
		}
		s.only = append(s.only, p)
	}
	for _, text := range strings.Split(nodes, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("-nodes %q: %q is no number of nodes", nodes, text)
		}
		s.power = append(s.power, n)
	}
	if s.inventory < 1 || s.update < 1 || s.concurrency < 1 || s.task < time.Second || s.foldEvents < 1 {
		return nil, errors.New("numbers of nodes, events and calls must be positive, and a task takes a second at least")
	}
	return s, nil
}

func (s *settings) wants(part string) bool { return slices.Contains(s.only, part) }

func run(ctx context.Context, s *settings) (err error) {
	dir := s.dir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "rackbench-"); err != nil {
			return err
		}
		defer os.RemoveAll(dir)
	}
	r := &report{Machine: thisMachine(), Started: time.Now().UTC(), LoadBefore: loadAverage()}
	r.printHeader(os.Stdout)
	if s.wants("a") || s.wants("b") {
		if err := runReads(ctx, s, dir, r); err != nil {
			return err
		}
	}
	if s.wants("c") {
		if err := runUpdate(ctx, s, dir, r); err != nil {
			return fmt.Errorf("part c: %w", err)
		}
	}
	if s.wants("d") {
		if err := runFolds(ctx, s, dir, r); err != nil {
			return fmt.Errorf("part d: %w", err)
		}
	}
	r.Took = time.Since(r.Started)
	r.printVerdict(os.Stdout)
	if s.json != "" {
		return r.write(s.json)
	}
	return nil
}
