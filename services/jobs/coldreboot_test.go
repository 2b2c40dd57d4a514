// SPDX-License-Identifier: Apache-2.0

package jobs_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	admit "github.com/rackbus/rackbus/pkg/admission"
	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/credentials"
	"github.com/rackbus/rackbus/pkg/failpoint"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/redfish"
	"github.com/rackbus/rackbus/pkg/redfishagent"
	"github.com/rackbus/rackbus/pkg/seal"
	"github.com/rackbus/rackbus/pkg/secret"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/jobs"
	"github.com/rackbus/rackbus/services/jobs/internal/coldreboot"
	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/reqlog"
)

// rackID is that of the simulated rack.
const (
	rackID     = "rack-1"
	switchType = "switch_gb200_nvidia"
)

// site is a simulated rack with agents and a replica of the jobs service.
type site struct {
	*rig
	rack    *sim.Rack
	points  *failpoint.Points
	targets []*rackbusv1.NodeTarget
	// switchBMC is the device that plays the BMC of the switch.
	switchBMC *sim.Device
	replica   *replica
}

// quickReboot are waits short enough for tests.
func quickReboot(o *jobs.Options) {
	o.ColdReboot = jobs.ColdRebootTiming{
		PrestagePollMax: 3 * time.Second, DischargeFloor: 40 * time.Millisecond, DischargePollMax: 5 * time.Second,
		BMCUpFloor: 40 * time.Millisecond, BMCUpPollMax: 5 * time.Second, HelloBackoff: 50 * time.Millisecond,
		BootWait: 40 * time.Millisecond, PollInterval: 25 * time.Millisecond, ActionLimit: 5 * time.Second,
		ProbeLimit: 3 * time.Second, ActionSettle: 2 * time.Second, ClockMargin: 20 * time.Millisecond,
		AgentWait: 200 * time.Millisecond,
	}
	o.DrainTimeout, o.ProgressInterval = 3*time.Second, 20*time.Millisecond
}

// quickTakeover are leases with which a job that its owner has dropped comes back
// soon.
func quickTakeover() bus.Timing {
	t := quick()
	t.AckWait, t.WorkInterval, t.NakBusy = 500*time.Millisecond, 150*time.Millisecond, 100*time.Millisecond
	return t
}

// steady are leases that outlast any pause of a busy machine, for tests in which nobody takes anything over.
func steady() bus.Timing {
	t := quick()
	t.SessionTTL, t.SessionMargin, t.AckWait = 2*patience, patience/6, patience
	return t
}

// newSite starts a rack of two trays, one of which only a descriptor can name, two
// shelves and a switch. Agents of the given families serve it.
func newSite(t *testing.T, families ...node.Family) *site {
	t.Helper()
	s := newIdleSite(t, quickTakeover(), families...)
	s.replica = s.start(hasty, quickReboot, func(o *jobs.Options) { o.Failpoints = s.points })
	s.await("the coordinator", func() bool {
		alive, err := s.conn.FamilyAlive(t.Context(), node.FamilyRack)
		return err == nil && alive
	})
	return s
}

// newIdleSite is newSite without the jobs service.
func newIdleSite(t *testing.T, timing bus.Timing, families ...node.Family) *site {
	t.Helper()
	t.Parallel()
	rack, err := sim.Start(t.Context(), sim.Options{
		RackID: rackID, CoupledPower: true, Outage: bmc.OutageRefuse,
		Timing: bmc.Timing{BMCOutage: 50 * time.Millisecond, Shutdown: 60 * time.Millisecond},
		NodeTypes: []sim.NodeTypeCount{
			{Type: "compute_gb200_nvidia", Count: 2}, {Type: "compute_gb200_wiwynn", Count: 1},
			{Type: "powershelf_gb200_liteon", Count: 1}, {Type: "powershelf_gb200_delta", Count: 1},
		},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, rack.Close()) })
	s := &site{rig: newRigTimed(t, timing), rack: rack, points: &failpoint.Points{}, switchBMC: rack.Devices()[1]}
	keys := make(seal.PublicKeys)
	seeds := make(map[node.Family]secret.Value)
	for _, f := range node.KeyFamilies() {
		seed, public, err := seal.GenerateFamilyKey()
		require.NoError(t, err)
		keys[f], seeds[f] = []string{public}, seed
	}
	s.describe(keys)
	for _, f := range families {
		s.agent(f, seeds[f])
	}
	return s
}

// describe makes the targets of the rack, with sealed credentials.
func (s *site) describe(keys seal.PublicKeys) {
	t := s.t
	sealer, err := seal.NewSealer(keys)
	require.NoError(t, err)
	nvue := s.nvue()
	for _, d := range s.rack.Devices() {
		target := &rackbusv1.NodeTarget{
			RackId: rackID, NodeId: d.ID(), NodeType: strings.ToLower(d.NodeType()),
			Bmc: &rackbusv1.DeviceEndpoint{Address: d.IP(), Port: uint32(d.Port()), Mac: d.MAC()},
		}
		if d == s.switchBMC {
			target.NodeType, target.Host = switchType, nvue
		}
		typ, ok := node.ByID(target.GetNodeType())
		require.True(t, ok, target.GetNodeType())
		session, err := sealer.NewSession(typ.Family)
		require.NoError(t, err)
		login := node.Credentials{User: d.Username(), Password: secret.New(d.Password())}
		at := node.Ref{RackID: rackID, NodeID: d.ID()}
		target.Bmc.Credentials, err = credentials.Seal(session, at, node.EndpointBMC, login)
		require.NoError(t, err)
		if target.GetHost() != nil {
			login = node.Credentials{User: "cumulus", Password: secret.New("pl4nted")}
			target.Host.Credentials, err = credentials.Seal(session, at, node.EndpointHost, login)
			require.NoError(t, err)
		}
		s.targets = append(s.targets, target)
	}
}

// nvue is the management API of the switch, which comes up some time after its BMC.
func (s *site) nvue() *rackbusv1.DeviceEndpoint {
	asked := 0
	var mu sync.Mutex
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		mu.Lock()
		defer mu.Unlock()
		switch asked++; {
		case r.URL.Path != "/nvue_v1/system":
			http.NotFound(w, r)
		case user != "cumulus" || password != "pl4nted":
			w.WriteHeader(http.StatusUnauthorized)
		case asked%2 == 0: // the first look is made before anything is changed
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			fmt.Fprint(w, `{"hostname":"switch-1"}`)
		}
	}))
	s.t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	require.NoError(s.t, err)
	port, err := strconv.Atoi(u.Port())
	require.NoError(s.t, err)
	return &rackbusv1.DeviceEndpoint{Address: u.Hostname(), Port: uint32(port)}
}

// agent serves the queries of a family against the simulated rack. The agent of
// switches is one for this test: it reads a switch through its BMC as it would a
// tray, and asks NVUE whether it is there.
func (s *site) agent(f node.Family, seed secret.Value) {
	t := s.t
	opener, err := seal.NewOpener([]secret.Value{seed}, seal.OpenerOptions{})
	require.NoError(t, err)
	devices := redfishagent.New(redfishagent.Options{
		Pool: redfish.NewPool(redfish.PoolOptions{}), FirmwareDir: t.TempDir(), Version: "0.0.0",
	})
	queries := devices.Queries()
	if f == node.FamilySwitch {
		get := queries[redfishagent.OpPowerGet]
		queries = map[string]agent.QueryHandler{
			redfishagent.OpPowerGet: func(ctx context.Context, q *agent.Query) *rackbusv1.NodeReply {
				q.Request = proto.CloneOf(q.Request)
				q.Request.Target.NodeType = "compute_gb200_nvidia"
				return get(ctx, q)
			},
			"nvos_hello": hello,
		}
	}
	a, err := agent.New(agent.Options{
		Conn: s.connect("agent-" + string(f)), Family: f, Instance: string(f), Opener: opener, Queries: queries, Logger: s.log,
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
		devices.Close()
	})
	s.await("agent "+string(f), func() bool { return a.Ready() == nil })
}

func hello(ctx context.Context, q *agent.Query) *rackbusv1.NodeReply {
	login, err := q.Credentials(node.EndpointHost)
	if err != nil {
		return agent.Refuse(agent.CodeInternal, err.Error(), "")
	}
	host := q.Target().GetHost()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		fmt.Sprintf("https://%s:%d/nvue_v1/system", host.GetAddress(), host.GetPort()), nil)
	if err != nil {
		return agent.Refuse(agent.CodeInternal, err.Error(), "")
	}
	req.SetBasicAuth(login.User, login.Password.Reveal())
	client := http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
	}}
	resp, err := client.Do(req)
	if err != nil {
		return agent.Refuse(agent.CodeUnreachable, err.Error(), "")
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return agent.Refuse("unavailable", resp.Status, "")
	}
	return &rackbusv1.NodeReply{V: 1}
}

var ownNode = node.Ref{RackID: rackID, NodeID: rackID + ":cold-reboot"}

// reboot admits a sequence over the whole rack, as the API does.
func (s *site) reboot() job.ID {
	s.t.Helper()
	a, err := admit.New(admit.Options{Conn: s.conn, Logger: s.log})
	require.NoError(s.t, err)
	defer a.Close()
	req := admit.Request{
		Type: job.TypeColdRebootSequence, RackID: rackID,
		Reserve: &admit.Reservation{RackPower: true, Operation: "cold reboot"},
		Nodes: []admit.Node{{Ref: ownNode, Family: node.FamilyRack, Command: func(job.ID) (*rackbusv1.JobCommand, error) {
			return &rackbusv1.JobCommand{
				Target:    &rackbusv1.NodeTarget{RackId: ownNode.RackID, NodeId: ownNode.NodeID},
				Operation: &rackbusv1.JobCommand_ColdReboot{ColdReboot: &rackbusv1.ColdReboot{Nodes: s.targets}},
			}, nil
		}}},
	}
	for _, target := range s.targets {
		req.Reserve.Nodes = append(req.Reserve.Nodes, node.Ref{RackID: rackID, NodeID: target.GetNodeId()})
	}
	res, err := a.AdmitCoordinator(s.t.Context(), req)
	require.NoError(s.t, err)
	return res.JobID
}

// requireNothingKept checks that a sequence that has ended keeps nobody off.
func (s *site) requireNothingKept(id job.ID) {
	s.t.Helper()
	s.requireFree(ownNode, id)
	for _, target := range s.targets {
		s.requireFree(node.Ref{RackID: rackID, NodeID: target.GetNodeId()}, id)
	}
	guard, err := s.conn.RackGuard(s.t.Context(), rackID)
	require.NoError(s.t, err)
	require.True(s.t, guard.Free(time.Now()))
}

// actions counts the power operations that reached each device.
func (s *site) actions() map[string]int {
	out := make(map[string]int)
	for _, d := range s.rack.Devices() {
		if n := len(s.rack.Requests(d.ID(), reqlog.Filter{Method: http.MethodPost})); n > 0 {
			out[d.ID()] = n
		}
	}
	return out
}

// requireOnceEach checks that every tray and shelf was taken down and up once, and
// that the switch was not touched.
func (s *site) requireOnceEach() {
	s.t.Helper()
	for _, d := range s.rack.Devices() {
		want := 2
		if d == s.switchBMC {
			want = 0
		} else {
			require.Equal(s.t, bmc.PowerOn, d.PowerState(), d.ID())
		}
		require.Equal(s.t, want, s.actions()[d.ID()], "power operations on %s", d.ID())
	}
}

func hardwareFamilies() []node.Family { return node.Families() }

func TestColdReboot(t *testing.T) {
	s := newSite(t, hardwareFamilies()...)
	seen := make(chan error, 1)
	s.points.Arm(coldreboot.Point("verify_discharged"), 1, func() error {
		// In the middle of it nobody else gets at the rack.
		_, err := s.conn.TakeRackPower(context.WithoutCancel(t.Context()), rackID, &rackbusv1.RackPower{V: 1, Holder: "x"}, time.Minute)
		seen <- err
		return nil
	})
	id := s.reboot()
	require.ErrorIs(t, <-seen, bus.ErrConflict)
	rec := s.awaitState(id, job.StateCompleted)
	require.Equal(t, coldreboot.Completed, rec.Description)
	require.Equal(t, uint32(100), rec.Percent)
	s.requireOnceEach()
	s.requireNothingKept(id)

	var result struct {
		StageIndex int `json:"stage_index"`
		Stages     []struct {
			Name, Status, Description string
			JobID                     string `json:"job_id"`
			Details                   map[string]any
		}
	}
	require.NoError(t, json.Unmarshal([]byte(rec.ResultJSON), &result), rec.ResultJSON)
	require.Equal(t, 9, result.StageIndex)
	var names []string
	for _, st := range result.Stages {
		require.Equal(t, "completed", st.Status, st.Name)
		require.Equal(t, id.String(), st.JobID)
		names = append(names, st.Name)
	}
	require.Equal(t, coldreboot.StageNames(), names)
	require.Equal(t, map[string]any{"attempts": 2.0}, result.Stages[6].Details)

	events, _, err := s.conn.NewestJobEvents(t.Context(), id, 0, 1000, 16<<20)
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(events, func(e bus.StoredEvent) bool {
		return e.Description == "Rack reboot step 0: Gracefully shutting down compute trays"
	}))
	for _, e := range events {
		if e.Kind == job.EventProgress {
			require.True(t, strings.HasPrefix(e.Description, "Rack reboot step "), e.Description)
		}
	}
	cmd := func() error { _, _, err := s.conn.Command(t.Context(), node.FamilyRack, ownNode); return err }
	s.await("the command to be erased", func() bool { return errors.Is(cmd(), bus.ErrNotFound) })
}

// TestColdRebootSurvivesItsCoordinator lets the coordinator die in every stage, and
// around power operations.
func TestColdRebootSurvivesItsCoordinator(t *testing.T) {
	type crash struct {
		point string
		n     int
	}
	crashes := []crash{{agent.FailAfterIntent, 1}, {agent.FailAfterDeviceChange, 3}, {agent.FailAfterDeviceChange, 4}}
	for _, stage := range coldreboot.StageNames() {
		crashes = append(crashes, crash{coldreboot.Point(stage), 1})
	}
	for _, c := range crashes {
		t.Run(fmt.Sprintf("%s %d", c.point, c.n), func(t *testing.T) {
			s := newSite(t, hardwareFamilies()...)
			s.points.Arm(c.point, c.n, func() error { return failpoint.ErrInjected })
			id := s.reboot()
			rec := s.awaitState(id, job.StateCompleted)
			require.Greater(t, rec.Epoch, uint64(1), "it has had another owner")
			s.requireOnceEach()
			s.requireNothingKept(id)
		})
	}
}

// TestColdRebootMovesToAnotherReplica kills the process in the worst of moments.
func TestColdRebootMovesToAnotherReplica(t *testing.T) {
	s := newSite(t, hardwareFamilies()...)
	dead := make(chan struct{})
	s.points.Arm(coldreboot.Point("power_on_shelves"), 1, func() error {
		close(dead)
		return failpoint.ErrInjected
	})
	id := s.reboot()
	<-dead
	s.start(hasty, quickReboot)
	s.replica.stop(t)
	s.awaitState(id, job.StateCompleted)
	s.requireOnceEach()
	s.requireNothingKept(id)
}

// TestColdRebootWithoutSwitchAgent fails at once, with the rack as it was.
func TestColdRebootWithoutSwitchAgent(t *testing.T) {
	s := newSite(t, node.FamilyCompute, node.FamilyPowerShelf)
	id := s.reboot()
	rec := s.awaitState(id, job.StateFailed)
	require.Equal(t, "no agent of the switch family answers power_get; nothing was changed", rec.Failure.Message)
	require.Equal(t, job.FailureAgentLost, rec.Failure.FailureCode)
	require.Empty(t, s.actions())
	s.requireNothingKept(id)
}

// TestColdRebootNamesTheShelfThatRefuses and leaves the trays as they are.
func TestColdRebootNamesTheShelfThatRefuses(t *testing.T) {
	s := newSite(t, hardwareFamilies()...)
	shelf := s.rack.Devices()[3]
	shelf.SetAccount("somebody", "else")
	id := s.reboot()
	rec := s.awaitState(id, job.StateFailed)
	require.Equal(t, job.FailurePowerActionFailed, rec.Failure.FailureCode)
	require.Equal(t, job.CodeOther, rec.Failure.Code)
	require.Contains(t, rec.Failure.Message, "power_off_shelves failed: "+shelf.ID()+": ")
	require.Contains(t, rec.ResultJSON, `"failures":["`+shelf.ID())
	s.requireNothingKept(id)
}
