// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/credentials"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/secret"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// Device is where a node's controller is, as the inventory knows it.
type Device struct {
	RackID, NodeID string
	// Type may be written in capitals, as the published enum does.
	Type     string
	IP       string
	Port     int
	User     string
	Password string
	// Host is the operating system of a tray, nil for none.
	Host *Host
}

// Host is the operating system of a tray and its login.
type Host struct {
	IP       string
	Port     int
	User     string
	Password string
}

// Target is the device as commands name it, with its logins sealed.
func (r *Rig) Target(d Device) *rackbusv1.NodeTarget {
	r.T.Helper()
	session, err := r.sealer.NewSession(r.Family)
	require.NoError(r.T, err)
	endpoint := func(kind node.EndpointKind, h Host) *rackbusv1.DeviceEndpoint {
		sealed, err := credentials.Seal(session, node.Ref{RackID: d.RackID, NodeID: d.NodeID}, kind,
			node.Credentials{User: h.User, Password: secret.New(h.Password)})
		require.NoError(r.T, err)
		return &rackbusv1.DeviceEndpoint{Address: h.IP, Port: uint32(h.Port), Credentials: sealed}
	}
	target := &rackbusv1.NodeTarget{
		RackId: d.RackID, NodeId: d.NodeID, NodeType: strings.ToLower(d.Type),
		Bmc: endpoint(node.EndpointBMC, Host{IP: d.IP, Port: d.Port, User: d.User, Password: d.Password}),
	}
	if d.Host != nil {
		target.Host = endpoint(node.EndpointHost, *d.Host)
	}
	return target
}

// File writes an image and returns the target that sends it to a component.
func (r *Rig) File(component, name string, content []byte) *rackbusv1.FirmwareUpdateTarget {
	r.T.Helper()
	require.NoError(r.T, os.WriteFile(filepath.Join(r.FirmwareDir, name), content, 0o600))
	sum := sha256.Sum256(content)
	return &rackbusv1.FirmwareUpdateTarget{
		Component: component, File: path.Join(r.below, name), SizeBytes: int64(len(content)), Sha256: sum[:],
	}
}

// Admit admits a firmware update as the API does.
func (r *Rig) Admit(target *rackbusv1.NodeTarget, update *rackbusv1.FirmwareUpdate, change ...func(*rackbusv1.JobCommand)) job.ID {
	r.T.Helper()
	id, err := job.NewFamily(rand.Reader)
	require.NoError(r.T, err)
	r.places.begin(id)
	at := node.Ref{RackID: target.GetRackId(), NodeID: target.GetNodeId()}
	deadline := time.Now().Add(time.Hour)
	rec := job.NewLeaf(job.Spec{
		ID: id, Type: job.TypeFirmwareUpdate, RackID: at.RackID, NodeID: at.NodeID, Family: string(r.Family),
		CreatedAt: time.Now(), Deadline: deadline, Visible: true,
	})
	command := &rackbusv1.JobCommand{
		V: 1, JobId: id.String(), Type: string(rec.Type), Family: rec.Family, Target: target, RunLimitSeconds: 3600,
		CreatedAt: timestamppb.Now(), Operation: &rackbusv1.JobCommand_FirmwareUpdate{FirmwareUpdate: update},
	}
	for _, c := range change {
		c(command)
	}
	for {
		records, rev, err := r.Conn.Capacity(r.T.Context())
		require.NoError(r.T, err)
		lock, err := r.Conn.Lock(r.T.Context(), at)
		require.NoError(r.T, err)
		tx := r.Conn.Begin()
		tx.SetCapacity(records+1, rev)
		tx.HoldNode(at, &rackbusv1.NodeLock{
			V: 1, JobId: id.String(), Type: string(rec.Type), Since: timestamppb.Now(),
		}, lock.Revision)
		tx.CreateRecord(&rec)
		tx.PutCommand(command, 24*time.Hour)
		tx.ArmTimer(bus.TimerDeadline, id, deadline)
		_, err = tx.Commit(r.T.Context())
		if errors.Is(err, bus.ErrConflict) {
			continue
		}
		require.NoError(r.T, err)
		return id
	}
}

// Job is everything that the events of a job have told, up to its end.
type Job struct {
	job.Event
	History []job.Event
}

// Stage returns a stage of the last picture; the zero stage when it has none.
func (j Job) Stage(name string) job.Stage {
	for _, s := range j.Stages {
		if s.Name == name {
			return s
		}
	}
	return job.Stage{}
}

// StageNames lists the timeline.
func (j Job) StageNames() []string {
	var names []string
	for _, s := range j.Stages {
		names = append(names, s.Name)
	}
	return names
}

// Descriptions lists what was told on the way, without repetitions in a row.
func (j Job) Descriptions() []string {
	var out []string
	for _, e := range j.History {
		out = append(out, e.Description)
	}
	return slices.Compact(out)
}

// Await returns the job once it has ended. It has one outcome, and nothing is
// told of it afterwards.
func (r *Rig) Await(id job.ID) Job {
	r.T.Helper()
	return r.AwaitEvent(id, "its end", func(e job.Event) bool { return e.Kind == job.EventFinished })
}

// AwaitStage returns once a stage is under way.
func (r *Rig) AwaitStage(id job.ID, name string) Job {
	r.T.Helper()
	return r.AwaitEvent(id, "stage "+name, func(e job.Event) bool {
		return slices.ContainsFunc(e.Stages, func(s job.Stage) bool {
			return s.Name == name && s.Status == job.StageRunning
		})
	})
}

// AwaitEvent reads the job's events from the first on until one is as wanted.
func (r *Rig) AwaitEvent(id job.ID, what string, wanted func(job.Event) bool) Job {
	r.T.Helper()
	ctx, cancel := context.WithTimeout(r.T.Context(), Patience)
	defer cancel()
	partition := id.Partition(bus.Partitions)
	events, err := r.Conn.ReadEvents(ctx, partition, r.places.beginning(id))
	require.NoError(r.T, err)
	defer events.Close()
	var out Job
	for {
		select {
		case raw := <-events.Wait():
			e, err := events.Take(raw)
			require.NoError(r.T, err)
			r.places.read(partition, e.Sequence)
			if e.ID != id {
				continue
			}
			out.Event = e.Event
			out.History = append(out.History, e.Event)
			if wanted(e.Event) {
				return out
			}
			require.NotEqual(r.T, job.EventFinished, e.Kind, "waiting for %s: job ended as %s: %+v", what, e.State, e.Failure)
		case <-ctx.Done():
			r.T.Fatalf("job %s: still waiting for %s; last: %s %q", id, what, out.State, out.Description)
		}
	}
}

// Cancel asks the job to stop, as the jobs service does.
func (r *Rig) Cancel(id job.ID, mode job.CancelMode) {
	r.T.Helper()
	for {
		ck, rev, err := r.Conn.Checkpoint(r.T.Context(), r.Family, id)
		require.NoError(r.T, err)
		require.False(r.T, ck.GetDone(), "the job has ended before it could be asked to stop")
		ck.Cancel = job.CancelToProto(&job.Cancel{Mode: mode, RequestedAt: time.Now().UTC(), Reason: "test"})
		if _, err = r.Conn.PutCheckpoint(r.T.Context(), ck, rev); errors.Is(err, bus.ErrConflict) {
			continue
		}
		require.NoError(r.T, err)
		require.NoError(r.T, r.Conn.WakeCancel(r.Family, id))
		return
	}
}

// Ask sends a synchronous request to the agents of the family.
func (r *Rig) Ask(target *rackbusv1.NodeTarget, op string, change ...func(*rackbusv1.NodeRequest)) *rackbusv1.NodeReply {
	r.T.Helper()
	ctx, cancel := context.WithTimeout(r.T.Context(), Patience)
	defer cancel()
	req := &rackbusv1.NodeRequest{V: 1, Target: target, Deadline: timestamppb.New(time.Now().Add(Patience / 2))}
	for _, c := range change {
		c(req)
	}
	reply, err := r.Conn.Request(ctx, r.Family, op, req)
	require.NoError(r.T, err)
	return reply
}
