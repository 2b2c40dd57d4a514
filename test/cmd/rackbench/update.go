// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/sim/firmwarepackage"
)

// Goals of part c.
const (
	goalAnswer = 2500 * time.Millisecond
	goalUpdate = 1.2
	goalMemory = 1 << 30
)

// The package that part c installs: as small as a package can be, because the
// machinery is measured and not the loopback interface.
const (
	packageFile    = "nvfw_GB200-P4972_2.0.0.fwpkg"
	packageVersion = "GB200Nvl-26.11-1"
	component      = "FW_BMC_0"
)

// Limits and intervals of part c.
const (
	statusPoll  = 250 * time.Millisecond
	updateLimit = 10 * time.Minute
)

// update is BatchUpdateFirmware of many nodes, both ways.
type update struct {
	Nodes        int           `json:"nodes"`
	TaskDuration time.Duration `json:"task_duration_ns"`
	// Answer is how long the call took, Rackbus how long until the parent job
	// read terminal, from the call on.
	Answer  time.Duration `json:"answer_ns"`
	Rackbus time.Duration `json:"rackbus_ns"`
	Direct  time.Duration `json:"direct_ns"`
	Ratio   float64       `json:"time_ratio"`
	// Description is the parent's last state description.
	Description string `json:"description"`
	PeakRSS     int64  `json:"rackbus_peak_rss_bytes"`
	// CPU of the whole run.
	CPURackbus    time.Duration `json:"cpu_rackbus_ns"`
	CPUSimRackbus time.Duration `json:"cpu_racksim_with_rackbus_ns"`
	CPUDirect     time.Duration `json:"cpu_direct_ns"`
	CPUSimDirect  time.Duration `json:"cpu_racksim_with_direct_ns"`
	// StatusP50 and StatusP99 are GetJobStatus calls for the parent meanwhile.
	StatusP50 time.Duration `json:"status_p50_ns"`
	StatusP99 time.Duration `json:"status_p99_ns"`
	// RequestsRackbus and RequestsDirect are what one update sends to its device
	// with a task of one second. They must be the same.
	RequestsRackbus int `json:"requests_per_update_rackbus"`
	RequestsDirect  int `json:"requests_per_update_direct"`
}

func runUpdate(ctx context.Context, s *settings, dir string, r *report) error {
	dir = filepath.Join(dir, "update")
	image, err := writePackage(filepath.Join(dir, "firmware"))
	if err != nil {
		return err
	}
	u := &update{Nodes: s.update, TaskDuration: s.task}
	ctx, cancel := context.WithTimeout(ctx, updateLimit)
	defer cancel()
	if err := u.throughRackbus(ctx, s, dir); err != nil {
		return err
	}
	if err := u.directly(ctx, s, dir, image); err != nil {
		return fmt.Errorf("direct updates: %w", err)
	}
	u.Ratio = u.Rackbus.Seconds() / u.Direct.Seconds()
	r.Update = u
	r.printUpdate(os.Stdout)
	return nil
}

func writePackage(dir string) ([]byte, error) {
	image, err := firmwarepackage.Build(firmwarepackage.Spec{
		Version:    "GB200-P4972_2.0.0",
		Components: []firmwarepackage.Component{{Name: component, Version: packageVersion, Payload: []byte("FWFW")}},
	})
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return image, os.WriteFile(filepath.Join(dir, packageFile), image, 0o600)
}

func (u *update) throughRackbus(ctx context.Context, s *settings, dir string) error {
	rack, err := startRack(ctx, s.bin, dir, u.Nodes, "--task-duration", u.TaskDuration.String())
	if err != nil {
		return err
	}
	defer rack.Stop()
	server, err := startServer(ctx, s.bin, dir, filepath.Join(dir, "firmware"), 2*u.Nodes+2)
	if err != nil {
		return err
	}
	defer server.Stop()
	c, err := dial(server, rack.nodes)
	if err != nil {
		return err
	}
	defer c.close()
	// The first call on a connection pays for its handshake.
	if _, err := c.racks.GetVersion(ctx, &rackmanager.GetVersionRequest{}); err != nil {
		return fmt.Errorf("GetVersion: %w", err)
	}
	called := time.Now()
	parent, err := start(ctx, c, rack.nodes)
	if err != nil {
		return err
	}
	u.Answer = time.Since(called)
	if err := u.follow(ctx, c, parent); err != nil {
		return err
	}
	u.Rackbus = time.Since(called)
	used, err := server.usage()
	if err != nil {
		return err
	}
	u.PeakRSS, u.CPURackbus = used.PeakRSS, used.CPU
	if used, err = rack.usage(); err != nil {
		return err
	}
	u.CPUSimRackbus = used.CPU
	return u.compareRequests(ctx, s, dir, c)
}

func start(ctx context.Context, c *client, nodes []*rackmanager.NodeInfo) (parent string, err error) {
	resp, err := c.racks.BatchUpdateFirmware(ctx, &rackmanager.BatchUpdateFirmwareRequest{
		Nodes: &rackmanager.NodeSet{Nodes: nodes},
		FirmwareTargets: map[int32]*rackmanager.FirmwareTargetList{
			int32(rackmanager.NodeType_COMPUTE_GB200_NVIDIA): {Targets: []*rackmanager.FirmwareTarget{{Filename: packageFile}}},
		},
	})
	if err != nil {
		return "", fmt.Errorf("BatchUpdateFirmware: %w", err)
	}
	if n := len(resp.GetJobs()); n != len(nodes) {
		return "", fmt.Errorf("BatchUpdateFirmware: %d of %d nodes were admitted: %s", n, len(nodes), resp.GetResponse().GetMessage())
	}
	return resp.GetResponse().GetJobId(), nil
}

// follow polls the parent until it is terminal.
func (u *update) follow(ctx context.Context, c *client, parent string) error {
	var polls []time.Duration
	tick := time.NewTicker(statusPoll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("jobs still running: %s: %w", u.Description, ctx.Err())
		case <-tick.C:
		}
		start := time.Now()
		resp, err := c.racks.GetJobStatus(ctx, &rackmanager.GetJobStatusRequest{JobId: parent})
		if err != nil {
			return fmt.Errorf("GetJobStatus: %w", err)
		}
		polls = append(polls, time.Since(start))
		status := resp.GetJobStates()[0]
		u.Description = status.GetStateDescription()
		switch status.GetExecutionState() {
		case rackmanager.JobExecutionState_JOB_EXECUTION_STATE_COMPLETED:
			sorted := sum([]sweep{{calls: polls, elapsed: 1}})
			u.StatusP50, u.StatusP99 = sorted.P50, sorted.P99
			return nil
		case rackmanager.JobExecutionState_JOB_EXECUTION_STATE_FAILED:
			return fmt.Errorf("the batch failed: %s: %s", u.Description, status.GetErrorMessage())
		default:
		}
	}
}

func (u *update) directly(ctx context.Context, s *settings, dir string, image []byte) error {
	rack, err := startRack(ctx, s.bin, dir, u.Nodes, "--task-duration", u.TaskDuration.String())
	if err != nil {
		return err
	}
	defer rack.Stop()
	d := newDirect(rack.nodes)
	defer d.close()
	before, err := usageOf(os.Getpid())
	if err != nil {
		return err
	}
	l := newLimits()
	errs := make([]error, u.Nodes)
	start := time.Now()
	var wg sync.WaitGroup
	for i := range u.Nodes {
		wg.Go(func() { errs[i] = d.update(ctx, i, image, l) })
	}
	wg.Wait()
	u.Direct = time.Since(start)
	if err := firstOf(errs); err != nil {
		return err
	}
	after, err := usageOf(os.Getpid())
	if err != nil {
		return err
	}
	u.CPUDirect = after.CPU - before.CPU
	used, err := rack.usage()
	u.CPUSimDirect = used.CPU
	return err
}

// firstOf names one of the errors and how many there are: thousands of nodes
// tend to fail for one reason.
func firstOf(errs []error) error {
	var first error
	n := 0
	for _, err := range errs {
		if err == nil {
			continue
		}
		if n++; first == nil || errors.Is(first, context.Canceled) {
			first = err
		}
	}
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d failed, one of them with: %w", n, len(errs), first)
}
