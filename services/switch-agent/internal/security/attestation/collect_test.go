// SPDX-License-Identifier: Apache-2.0

package attestation_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security/attestation"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security/securitytest"
	"github.com/rackbus/rackbus/sim/faults"
	"github.com/rackbus/rackbus/sim/nvswitch"
	"github.com/rackbus/rackbus/sim/reqlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	first  = "ERoT_BMC_0"
	second = "ERoT_FPGA_0"
)

// caller asks for a switch.
type caller struct{ b *securitytest.Bench }

func (c caller) Target() *rackbusv1.NodeTarget { return c.b.Target() }
func (c caller) Credentials(node.EndpointKind) (node.Credentials, error) {
	return c.b.Login, nil
}
func (c caller) Guard() agent.Guard { return nvue.Unguarded{} }

var nonce = bytes.Repeat([]byte{0xAB, 0xCD, 0x12, 0x34}, 8)

func collect(ctx context.Context, b *securitytest.Bench, nonce []byte, t attestation.Timing) (*rackbusv1.NodeReply, error) {
	b.T.Helper()
	sw, err := b.Switches.Open(caller{b}, "", slog.New(slog.NewTextHandler(b.Logs, &slog.HandlerOptions{Level: slog.LevelDebug})))
	require.NoError(b.T, err)
	defer sw.Close()
	if t.Poll == 0 {
		t.Poll = securitytest.Tick
	}
	return attestation.New(t).Collect(ctx, sw, &rackbusv1.NodeRequest{
		V: 1, SwitchOperation: &rackbusv1.NodeRequest_Spdm{Spdm: &rackbusv1.SpdmRequest{Nonce: nonce}},
	})
}

func bench(t *testing.T, change ...func(*securitytest.Setup)) *securitytest.Bench {
	b := securitytest.New(t, change...)
	b.Provision("nvue")
	return b
}

// silent checks that the nonce shows nowhere but in the evidence.
func silent(t *testing.T, b *securitytest.Bench, texts ...string) {
	t.Helper()
	for _, text := range append(texts, b.Logs.String()) {
		require.NotContains(t, strings.ToLower(text), hex.EncodeToString(nonce))
		require.NotContains(t, text, securitytest.Password)
	}
}

func TestCollect(t *testing.T) {
	t.Parallel()
	b := bench(t)
	reply, err := collect(t.Context(), b, nonce, attestation.Timing{})
	require.NoError(t, err)
	components := reply.GetSpdmEvidence().GetComponents()
	require.Len(t, components, 2)
	for i, id := range []string{first, second} {
		require.Equal(t, id, components[i].GetComponentId())
		require.Empty(t, components[i].GetError())
		var m map[string]string
		require.NoError(t, json.Unmarshal(components[i].GetMeasurements(), &m))
		require.Equal(t, nvswitch.Measurements(id, hex.EncodeToString(nonce)), m["signed-measurements"], "fresh")
		require.Contains(t, string(components[i].GetCertificateChain()), "BEGIN CERTIFICATE")
		require.NotContains(t, string(components[i].GetMeasurements()), "\n")
	}
	silent(t, b)
	posts := b.Sim.Requests(reqlog.Filter{Method: "POST"})
	require.Len(t, posts, 2)
	require.Contains(t, posts[0].Path, first)
}

func TestNonce(t *testing.T) {
	t.Parallel()
	b := bench(t)
	for _, n := range [][]byte{nil, nonce[:31], append(nonce, 1)} {
		_, err := collect(t.Context(), b, n, attestation.Timing{})
		require.ErrorIs(t, err, attestation.ErrNonce)
		require.Equal(t, agent.CodeInvalidArgument, device.Refuse(err).GetError().GetCode())
	}
	require.Empty(t, b.Sim.Requests(reqlog.Filter{Method: "POST"}))
}

func script(docs ...string) []json.RawMessage {
	var out []json.RawMessage
	for _, d := range docs {
		out = append(out, json.RawMessage(d))
	}
	return out
}

// One component fails, the other is kept.
func TestOneComponentFails(t *testing.T) {
	t.Parallel()
	path := "/system/security/spdm/" + first
	echo := `no: ` + hex.EncodeToString(nonce)
	for name, c := range map[string]struct {
		knobs nvswitch.Knobs
		says  string
	}{
		"failed":           {nvswitch.Knobs{Actions: []nvswitch.ActionRule{{Resource: path, Script: script(`{"state":"action_failed","issue":["` + echo + `"]}`)}}}, "no:"},
		"error":            {nvswitch.Knobs{Actions: []nvswitch.ActionRule{{Resource: path, Script: script(`{"state":"action_error","detail":"the signer is away"}`)}}}, "the signer is away"},
		"error, all done":  {nvswitch.Knobs{Actions: []nvswitch.ActionRule{{Resource: path, Script: script(`{"state":"action_error","percentage":100}`)}}}, "action_error"},
		"odd state":        {nvswitch.Knobs{Actions: []nvswitch.ActionRule{{Resource: path, Script: script(`{"state":"running"}`, `{"state":"complete"}`)}}}, "complete"},
		"no state":         {nvswitch.Knobs{Actions: []nvswitch.ActionRule{{Resource: path, Script: script(`{"status":"done"}`)}}}, "state"},
		"malformed status": {nvswitch.Knobs{Actions: []nvswitch.ActionRule{{Resource: path, Script: script(`["what"]`)}}}, "state"},
		"vanished":         {nvswitch.Knobs{Actions: []nvswitch.ActionRule{{Resource: path, Missing: true}}}, "does not know"},
		"no id":            {nvswitch.Knobs{Actions: []nvswitch.ActionRule{{Resource: path, NoID: true}}}, "names no action"},
		"never":            {nvswitch.Knobs{Actions: []nvswitch.ActionRule{{Resource: path, Script: script(`{"state":"inactive"}`)}}}, "not done within"},
		"empty evidence":   {nvswitch.Knobs{EmptyEvidence: []string{first}}, "holds no evidence"},
		"long":             {nvswitch.Knobs{Actions: []nvswitch.ActionRule{{Resource: path, Script: script(`{"state":"action_failed","issue":["` + strings.Repeat("x", 4000) + `"]}`)}}}, "xxx"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bench(t)
			b.Sim.SetKnobs(c.knobs)
			reply, err := collect(t.Context(), b, nonce, attestation.Timing{Component: time.Second})
			require.NoError(t, err)
			components := reply.GetSpdmEvidence().GetComponents()
			require.Len(t, components, 2)
			require.Contains(t, components[0].GetError(), c.says)
			require.LessOrEqual(t, len(components[0].GetError()), 1024)
			require.Empty(t, components[0].GetMeasurements())
			require.Empty(t, components[1].GetError())
			require.NotEmpty(t, components[1].GetMeasurements())
			silent(t, b, components[0].GetError())
		})
	}
}

// The deadline comes in the middle: what was collected is kept, and the answer is in
// time.
func TestDeadline(t *testing.T) {
	t.Parallel()
	b := bench(t, func(s *securitytest.Setup) { s.Sim.SPDM = []string{"A", "B", "C"} })
	b.Sim.SetKnobs(nvswitch.Knobs{Actions: []nvswitch.ActionRule{{Resource: "/system/security/spdm/B", Script: script(`{"state":"running"}`)}}})
	for name, timing := range map[string]attestation.Timing{
		"of the caller": {Reply: 3 * time.Second}, "of all": {Total: 2 * time.Second, Reply: time.Millisecond},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		reply, err := collect(ctx, b, nonce, timing)
		require.NoError(t, err, name)
		require.NoError(t, ctx.Err(), name)
		components := reply.GetSpdmEvidence().GetComponents()
		require.Len(t, components, 3)
		require.NotEmpty(t, components[0].GetMeasurements())
		require.Empty(t, components[0].GetError())
		require.Contains(t, components[1].GetError(), "timeout")
		require.Contains(t, components[2].GetError(), "timeout")
	}
	require.Empty(t, b.Sim.Requests(reqlog.Filter{Method: "POST", Path: "/nvue_v1/system/security/spdm/C"}))
}

func TestCancelDropsTheWork(t *testing.T) {
	t.Parallel()
	b := bench(t)
	b.Sim.SetKnobs(nvswitch.Knobs{Actions: []nvswitch.ActionRule{{Resource: "/system/security/spdm/*", Script: script(`{"state":"running"}`)}}})
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	_, err := collect(ctx, b, nonce, attestation.Timing{})
	require.ErrorIs(t, err, context.Canceled)
}

func TestSwitchFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*securitytest.Setup)
		knobs  nvswitch.Knobs
		login  string
		code   string
	}{
		"no component":    {func(s *securitytest.Setup) { s.Sim.SPDM = []string{} }, nvswitch.Knobs{}, "", "failed_precondition"},
		"wrong password":  {nil, nvswitch.Knobs{}, "root", "unauthenticated"},
		"no connection":   {nil, nvswitch.Knobs{Refuse: []string{"nvue"}}, "", "unreachable"},
		"inventory fails": {func(s *securitytest.Setup) { s.Sim.Faults = failing("/nvue_v1/system/security/spdm") }, nvswitch.Knobs{}, "", "internal"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var changes []func(*securitytest.Setup)
			if c.change != nil {
				changes = append(changes, c.change)
			}
			b := bench(t, changes...)
			b.Sim.SetKnobs(c.knobs)
			if c.login != "" {
				b.Login.User = c.login
			}
			reply, err := collect(t.Context(), b, nonce, attestation.Timing{})
			require.Error(t, err)
			require.Nil(t, reply)
			require.Equal(t, c.code, device.Refuse(err).GetError().GetCode(), err.Error())
			silent(t, b, err.Error())
		})
	}
	t.Run("J7 no certificate of ours", func(t *testing.T) {
		t.Parallel()
		b := securitytest.New(t)
		_, err := collect(t.Context(), b, nonce, attestation.Timing{})
		require.Equal(t, "failed_precondition", device.Refuse(err).GetError().GetCode())
		require.Empty(t, b.Sim.Requests(reqlog.Filter{Method: "POST"}))
	})
}

func failing(path string) *faults.Set {
	set := &faults.Set{}
	_, _ = set.Add(faults.Rule{Selector: faults.Request("GET", path), Action: faults.Action{Status: &faults.Status{Code: 500}}})
	return set
}
