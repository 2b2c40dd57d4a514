// SPDX-License-Identifier: Apache-2.0

// Package command is the racksim command line.
package command

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/faults"
	"github.com/rackbus/rackbus/sim/nvswitch"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

const usage = `racksim simulates the management controllers of a rack: compute trays and power shelves as Redfish
servers over TLS, and switch trays with NVUE, SSH, NMX-C, gNMI and a BMC. It prints the rack as a NodeSet in JSON, then
"ready", and serves until SIGINT or SIGTERM. With --inventory it also writes the rack as a file for rackctl.

Usage: racksim [flags]

  racksim --compute 4 --powershelves 1 --inventory rack.csv
  rackctl nodes create -f rack.csv

Up to 1,000 devices each get a port: the first --port-base, further ones the next. More devices each get an address
of their own, 127.1.0.1 and up, all on port --port-base; --listen is not used then.

Each switch has an address of its own, --switch-address and up, and the ports of --switch-ports. The NodeSet tells those
of NVUE and the BMC; the others have to be told to the clients. Their SSH host keys are new at every start.

Flags:
`

// errNodeType is what --node-type finds wrong.
var errNodeType = errors.New("need TYPE=N with a node type that can be simulated")

// errNothing is what a call without devices is told.
var errNothing = errors.New("nothing to simulate: give --compute, --switches, --powershelves or --node-type, " +
	"for example racksim --compute 4 --powershelves 1; see --help")

// settings are the flags.
type settings struct {
	options    sim.Options
	requests   string
	inventory  string
	faults     string
	outage     string
	compute    string
	shelf      string
	switchType string
}

// Main is Run until SIGINT or SIGTERM.
func Main(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return Run(ctx, args, stdout, stderr)
}

// Run runs racksim until ctx ends and returns the exit code: 0 after a clean stop, 1 for a failure, 2 for wrong use.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	s, err := parse(args, stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		fmt.Fprintln(stderr, "racksim:", err)
		return exitUsage
	}
	err = run(ctx, s, stdout)
	switch {
	case errors.Is(err, sim.ErrInvalidOption):
		fmt.Fprintln(stderr, "racksim:", err)
		return exitUsage
	case err != nil:
		fmt.Fprintln(stderr, "racksim:", err)
		return exitFailed
	}
	return exitOK
}

// parse reads the flags; asked for help it prints that to stdout and returns flag.ErrHelp.
func parse(args []string, stdout io.Writer) (*settings, error) {
	s := &settings{}
	o := &s.options
	f := flag.NewFlagSet("racksim", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Usage = func() {}
	f.IntVar(&o.Compute, "compute", 0, "number of compute trays")
	f.IntVar(&o.PowerShelves, "powershelves", 0, "number of power shelves")
	f.Func("node-type", "TYPE=N: N more devices of a node type, for example compute_gb300_lenovo=2; may be repeated", func(text string) error {
		kind, count, ok := strings.Cut(text, "=")
		n, err := strconv.Atoi(count)
		_, known := bmc.ModelOf(kind)
		_, isSwitch := nvswitch.ModelOf(kind)
		if !ok || err != nil || n < 0 || !known && !isSwitch {
			return errNodeType
		}
		o.NodeTypes = append(o.NodeTypes, sim.NodeTypeCount{Type: kind, Count: n})
		return nil
	})
	f.IntVar(&o.Switches, "switches", 0, "number of switch trays")
	f.StringVar(&o.SwitchAddress, "switch-address", "127.2.0.1", "address of the first switch; further ones follow")
	o.SwitchPorts = defaultPorts()
	f.Func("switch-ports", "ports of all switches (default "+portText(defaultPorts())+"); what is left out keeps its default", func(text string) error {
		return setPorts(&o.SwitchPorts, text)
	})
	f.StringVar(&s.switchType, "type-switch", "gb200", "switch trays: gb200, gb300 or mixed")
	f.DurationVar(&o.SwitchTiming.Reboot, "switch-reboot", 2*time.Second, "time a switch is away when it reboots")
	f.DurationVar(&o.SwitchTiming.Install, "switch-install", 2*time.Second, "time an installation on a switch takes")
	f.StringVar(&o.RackID, "rack", "rack-1", "rack id of the nodes")
	f.StringVar(&o.Listen, "listen", "127.0.0.1", "IP address to listen on")
	f.IntVar(&o.PortBase, "port-base", 0, "port of the first device; 0 takes free ports")
	f.StringVar(&s.requests, "requests", "", "file for one JSON line per request")
	f.StringVar(&s.inventory, "inventory", "", "file to write the rack to for rackctl nodes create -f: CSV, with the passwords")
	f.StringVar(&s.faults, "faults", "", "file with a JSON list of fault rules")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of serial numbers, MAC addresses and start versions")
	f.StringVar(&s.compute, "type-compute", "gb200", "compute trays: gb200, gb300 or mixed")
	f.StringVar(&s.shelf, "type-powershelf", "gb200", "power shelves: gb200, gb300 or mixed")
	f.StringVar(&o.Username, "username", "admin", "user name of the devices")
	f.StringVar(&o.Password, "password", "racksim-pw", "password of the devices")
	f.DurationVar(&o.Timing.Task, "task-duration", 0, "duration of an update task (default 2s)")
	f.DurationVar(&o.Timing.BMCOutage, "bmc-outage", 0, "time a BMC is away after a reset (default 2s)")
	f.DurationVar(&o.Timing.PowerOn, "power-on", 0, "time a host is PoweringOn")
	f.DurationVar(&o.Timing.Shutdown, "shutdown", 0, "time a host is PoweringOff after a graceful shutdown")
	f.StringVar(&s.outage, "outage", "503", "what a BMC does while it is away: 503, or refuse connections")
	f.BoolVar(&o.CoupledPower, "coupled-power", false, "compute trays and switches lose power, BMCs included, while all shelves are off")
	f.StringVar(&o.Control, "control", "", "loopback IP:PORT of the control listener (/sim/faults, /sim/devices)")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			f.SetOutput(stdout)
			fmt.Fprint(stdout, usage)
			f.PrintDefaults()
			return nil, err
		}
		return nil, fmt.Errorf("%w; see --help", err)
	}
	o.ComputeGeneration, o.ShelfGeneration = sim.Generation(s.compute), sim.Generation(s.shelf)
	o.Outage, o.SwitchGeneration = bmc.OutageMode(s.outage), sim.Generation(s.switchType)
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if o.Compute == 0 && o.PowerShelves == 0 && o.Switches == 0 && len(o.NodeTypes) == 0 {
		return nil, errNothing
	}
	return s, nil
}

func run(ctx context.Context, s *settings, stdout io.Writer) (err error) {
	o := s.options
	o.KeepRequests = -1
	o.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	if s.faults != "" {
		if o.Faults, err = loadFaults(s.faults); err != nil {
			return err
		}
	}
	if s.requests != "" {
		f, err := os.OpenFile(s.requests, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		if err != nil {
			return fmt.Errorf("open request log: %w", err)
		}
		defer f.Close() // the log's own Close has reported write errors
		o.RequestLog = f
	}
	rack, err := sim.Start(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rack.Close()) }()
	if addr := rack.ControlAddr(); addr != "" {
		o.Logger.Info("control listener is up", "addr", addr)
	}
	if len(rack.Switches()) > 0 {
		o.Logger.Info("switches are up", "first", rack.Switches()[0].IP(), "ports", portText(rack.SwitchPorts()))
	}
	if s.inventory != "" {
		if err := writeInventory(s.inventory, rack.Inventory()); err != nil {
			return err
		}
	}
	if err := announce(stdout, rack); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func announce(stdout io.Writer, rack *sim.Rack) error {
	out := bufio.NewWriter(stdout)
	doc := json.NewEncoder(out)
	doc.SetIndent("", " ")
	if err := doc.Encode(rack.NodeSet()); err != nil {
		return fmt.Errorf("print node set: %w", err)
	}
	fmt.Fprintln(out, "ready")
	if err := out.Flush(); err != nil {
		return fmt.Errorf("print node set: %w", err)
	}
	return nil
}

func loadFaults(path string) ([]faults.Rule, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open fault rules: %w", err)
	}
	defer f.Close()
	return faults.Load(f)
}
