// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// demo is the client's side of the demonstration.
type demo struct {
	out   *screen
	dir   string
	nodes *rackmanager.NodeSet

	conn  *grpc.ClientConn
	racks rackmanager.RackManagerClient
	jobs  rackbusv1.JobsClient

	// single and parent are the updates of trays, images that of the switches.
	single, parent, images string
	submitted              time.Time
}

// connect dials as any client would: with a certificate of the test CA.
func (d *demo) connect(s *server) error {
	cert, err := tls.LoadX509KeyPair(filepath.Join(s.keys, "client.crt"), filepath.Join(s.keys, "client.key"))
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(filepath.Join(s.keys, "ca.crt"))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return errors.New("no certificate in ca.crt")
	}
	d.conn, err = grpc.NewClient(s.grpc, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{cert}, RootCAs: roots, MinVersion: tls.VersionTLS13, ServerName: "localhost",
	})))
	if err != nil {
		return err
	}
	d.racks, d.jobs = rackmanager.NewRackManagerClient(d.conn), rackbusv1.NewJobsClient(d.conn)
	return nil
}

func (d *demo) close() { _ = d.conn.Close() }

func (d *demo) register(ctx context.Context) error {
	resp, err := d.racks.CreateNodes(ctx, &rackmanager.CreateNodesRequest{Nodes: d.nodes})
	if err != nil {
		return fmt.Errorf("CreateNodes: %w", err)
	}
	if resp.GetResponse().GetStatus() != rackmanager.ReturnCode_RETURN_CODE_SUCCESS {
		return fmt.Errorf("CreateNodes: %s", resp.GetResponse().GetMessage())
	}
	d.out.step("CreateNodes: %d nodes registered, credentials sealed to the agents", resp.GetStats().GetSuccessfulNodes())
	return nil
}

func (d *demo) readPower(ctx context.Context) error {
	start := time.Now()
	resp, err := d.racks.BatchGetPowerState(ctx, &rackmanager.BatchGetPowerStateRequest{Nodes: d.nodes})
	if err != nil {
		return fmt.Errorf("BatchGetPowerState: %w", err)
	}
	states := map[string]int{}
	for _, s := range resp.GetNodePowerStates() {
		states[s.GetPstate()]++
	}
	d.out.step("BatchGetPowerState: %s in %s", counts(states), time.Since(start).Round(time.Millisecond))
	return nil
}

func (d *demo) readInventory(ctx context.Context) error {
	start := time.Now()
	entries, versions, err := d.versions(ctx)
	if err != nil {
		return err
	}
	d.out.step("GetRackFirmwareInventory: %d firmware entries in %s", entries, time.Since(start).Round(time.Millisecond))
	d.out.step("%s of the trays: %s; %s of the switches: %s",
		component, counts(versions[component]), imageRow, counts(versions[imageRow]))
	return nil
}

// versions counts the nodes by the versions of what the demo updates.
func (d *demo) versions(ctx context.Context) (entries int, versions map[string]map[string]int, err error) {
	resp, err := d.racks.GetRackFirmwareInventory(ctx, &rackmanager.GetRackFirmwareInventoryRequest{RackId: rackID})
	if err != nil {
		return 0, nil, fmt.Errorf("GetRackFirmwareInventory: %w", err)
	}
	versions = map[string]map[string]int{component: {}, imageRow: {}}
	for _, n := range resp.GetNodes() {
		entries += len(n.GetFirmwareList())
		for _, f := range n.GetFirmwareList() {
			if wanted := versions[f.GetName()]; wanted != nil {
				wanted[f.GetVersion()]++
			}
		}
	}
	return entries, versions, nil
}

// updateTrays starts a job on one tray, then a batch over all: the busy tray is
// refused and the others are followed live.
func (d *demo) updateTrays(ctx context.Context) error {
	tray := fmt.Sprintf("compute-%04d", busyTray)
	one, err := d.racks.UpdateFirmware(ctx, &rackmanager.UpdateFirmwareRequest{
		RackId: rackID, NodeId: tray, Filename: packageFile, Activate: true,
	})
	if err != nil {
		return fmt.Errorf("UpdateFirmware: %w", err)
	}
	if one.GetJobId() == "" {
		return fmt.Errorf("UpdateFirmware: %s", one.GetMessage())
	}
	d.single = one.GetJobId()
	d.out.step("UpdateFirmware on %s: job %s", tray, d.single)

	d.submitted = time.Now()
	batch, err := d.racks.BatchUpdateFirmwareByNodeType(ctx, &rackmanager.BatchUpdateFirmwareByNodeTypeRequest{
		RackId: rackID, NodeType: rackmanager.NodeType_COMPUTE_GB200_NVIDIA, Filename: packageFile, Activate: true,
	})
	if err != nil {
		return fmt.Errorf("BatchUpdateFirmwareByNodeType: %w", err)
	}
	d.parent = batch.GetResponse().GetJobId()
	d.out.step("BatchUpdateFirmwareByNodeType: job %s, %d of %d trays admitted in %s", d.parent,
		len(batch.GetJobs()), batch.GetResponse().GetStats().GetTotalNodes(), time.Since(d.submitted).Round(time.Millisecond))
	for _, r := range batch.GetResponse().GetNodeResults() {
		if r.GetErrorMessage() != "" {
			d.out.note("refused: %s: %s", r.GetNodeId(), r.GetErrorMessage())
		}
	}
	return d.follow(ctx, job.TypeFirmwareUpdate, d.parent, d.single)
}

// installImage brings another build of NVOS to all switches, which reboot into it.
func (d *demo) installImage(ctx context.Context) error {
	var switches []*rackmanager.NodeInfo
	for _, n := range d.nodes.GetNodes() {
		if isSwitch(n.GetType().String()) {
			switches = append(switches, n)
		}
	}
	start := time.Now()
	batch, err := d.racks.UpdateSwitchSystemImage(ctx, &rackmanager.UpdateSwitchSystemImageRequest{
		Nodes: &rackmanager.NodeSet{Nodes: switches}, ImageFilename: imageFile, LocalFilePath: imageFile,
	})
	if err != nil {
		return fmt.Errorf("UpdateSwitchSystemImage: %w", err)
	}
	if batch.GetResponse().GetStatus() != rackmanager.ReturnCode_RETURN_CODE_SUCCESS {
		return fmt.Errorf("UpdateSwitchSystemImage: %s", batch.GetResponse().GetMessage())
	}
	d.images = batch.GetResponse().GetJobId()
	d.out.step("UpdateSwitchSystemImage: job %s, %d of %d switches admitted in %s", d.images,
		len(batch.GetJobs()), batch.GetResponse().GetStats().GetTotalNodes(), time.Since(start).Round(time.Millisecond))
	return d.follow(ctx, job.TypeSwitchSystemImageUpdate, d.images)
}

// follow shows the jobs of a type until all have ended.
func (d *demo) follow(ctx context.Context, typ job.Type, ids ...string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := d.jobs.WatchJobs(ctx, &rackbusv1.WatchJobsRequest{
		Filter: &rackbusv1.JobFilter{RackId: rackID, Types: []string{string(typ)}},
	})
	if err != nil {
		return fmt.Errorf("WatchJobs: %w", err)
	}
	board := newBoard(d.out)
	var drawing sync.WaitGroup
	drawing.Go(func() { board.draw(ctx) })
	defer drawing.Wait()
	defer cancel()
	for !board.ended(ids...) {
		update, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return errors.New("WatchJobs ended early")
		}
		if err != nil {
			return fmt.Errorf("WatchJobs: %w", err)
		}
		if j := update.GetJob(); j.GetJobId() != "" {
			board.put(j)
		}
	}
	return nil
}

func (d *demo) summary(ctx context.Context) error {
	d.out.title("Summary, %s after the trays were submitted", time.Since(d.submitted).Round(100*time.Millisecond))
	for _, parent := range []string{d.parent, d.images} {
		if err := d.outcome(ctx, parent); err != nil {
			return err
		}
	}
	_, versions, err := d.versions(ctx)
	if err != nil {
		return err
	}
	d.out.step("%s of the trays now: %s", component, counts(versions[component]))
	d.out.step("%s of the switches now: %s", imageRow, counts(versions[imageRow]))
	return nil
}

// outcome tells how a batch went, and why parts of it failed.
func (d *demo) outcome(ctx context.Context, parent string) error {
	resp, err := d.racks.GetJobStatus(ctx, &rackmanager.GetJobStatusRequest{JobId: parent, IncludeChildJobStates: true})
	if err != nil {
		return fmt.Errorf("GetJobStatus: %w", err)
	}
	for i, s := range resp.GetJobStates() {
		switch {
		case i == 0:
			d.out.step("batch: %s", s.GetStateDescription())
		case s.GetExecutionState() == rackmanager.JobExecutionState_JOB_EXECUTION_STATE_FAILED:
			d.out.note("failed: %s: %s", s.GetNodeId(), s.GetErrorMessage())
		}
	}
	return nil
}

// hints tells how to look further: with a server that runs on, and else how to get one.
func (d *demo) hints(s *server, keep bool) error {
	d.out.title("How to look further")
	if !keep {
		d.out.plain("make demo KEEP=1 leaves the rack and the server running, to be looked at with rackctl and a browser.")
		d.out.plain("docs/how-a-job-travels.md tells what happened here, README.md how to run Rackbus yourself.")
		return nil
	}
	config := filepath.Join(d.dir, "rackctl.yaml")
	if err := os.WriteFile(config, s.rackctlConfig(), 0o600); err != nil {
		return err
	}
	pkcs12 := filepath.Join(d.dir, "client.p12")
	d.out.plain("In a second terminal in this directory:")
	d.out.plain("  export RACKCTL_CONFIG=%s", config)
	d.out.plain("  bin/rackctl racks")
	d.out.plain("  bin/rackctl job get %s", d.parent)
	d.out.plain("  bin/rackctl diag --job %s --wait", d.parent)
	d.out.plain("The console is %s, for a browser that has imported (password demo) what this makes:", s.console)
	d.out.plain("  openssl pkcs12 -export -passout pass:demo -in %[1]s/client.crt -inkey %[1]s/client.key -out %[2]s", s.keys, pkcs12)
	d.out.plain("Metrics: http://%s/metrics", s.metrics)
	d.out.plain("\nRunning until Ctrl-C, which removes %s.", d.dir)
	return nil
}

func counts(m map[string]int) string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	text := ""
	for _, k := range keys {
		if text != "" {
			text += ", "
		}
		text += fmt.Sprintf("%d x %s", m[k], k)
	}
	return text
}
