// SPDX-License-Identifier: Apache-2.0

// Command rackdemo shows Rackbus at work on a simulated rack: it starts racksim
// and `rackbus serve` as real processes, registers 18 compute trays, 9 switches
// and 8 power shelves over mutual TLS, reads them, updates the firmware of all
// trays, and installs another image on all switches. One tray is busy and one
// fails, so that both can be seen.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// demoLimit ends a demo that hangs.
const demoLimit = 3 * time.Minute

func main() {
	bin := flag.String("bin", "bin", "directory of the programs")
	keep := flag.Bool("keep", false, "keep the rack and the server running until Ctrl-C")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, *bin, *keep)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, bin string, keep bool) (err error) {
	interactive := ctx
	ctx, cancel := context.WithTimeout(ctx, demoLimit)
	defer cancel()
	dir, err := os.MkdirTemp("", "rackbus-demo-")
	if err != nil {
		return err
	}
	defer func() {
		if err == nil { // after a failure the logs tell why
			err = os.RemoveAll(dir)
		}
	}()
	out := newScreen(os.Stdout)
	out.title("Rackbus demo: one rack, %d compute trays, %d switches, %d power shelves (simulated)", trays, switches, shelves)

	rack, err := startRack(ctx, bin, dir)
	if err != nil {
		return err
	}
	defer rack.Stop()
	server, err := startServer(ctx, bin, dir, rack.ports)
	if err != nil {
		return err
	}
	defer server.Stop()
	out.step("rackbus serve is ready: gRPC with mutual TLS on %s, data in %s", server.grpc, filepath.Join(dir, "data"))
	out.step("web console on %s, for a browser with the certificate in %s (docs/console.md tells how)", server.console, server.keys)

	d := &demo{out: out, dir: dir, nodes: rack.nodes}
	if err := d.connect(server); err != nil {
		return err
	}
	defer d.close()
	for _, step := range []func(context.Context) error{
		d.register, d.readPower, d.readInventory, d.updateTrays, d.installImage, d.summary,
	} {
		if err := step(ctx); err != nil {
			return fmt.Errorf("%w\n(server log: %s)", err, server.Log())
		}
	}
	if err := d.hints(server, keep); err != nil {
		return err
	}
	if keep {
		<-interactive.Done()
	}
	return nil
}
