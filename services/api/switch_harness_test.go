// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/certs"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/switchtls"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// plantedNew is the new password of a rotation, which only the agents may see.
const plantedNew = "pl4nted-n3w-s3cret"

// switchNode is a switch of a rack, each with an address of its own.
func switchNode(rack string, i int) *rackmanager.NodeInfo {
	n := typed(rack, fmt.Sprintf("sw-%d", i), rackmanager.NodeType_SWITCH_GB200_NVIDIA)
	n.HostEndpoint = endpoint(fmt.Sprintf("10.0.1.%d", i))
	return n
}

// badSwitches are nodes that no switch RPC takes, with what it says of each.
func badSwitches() ([]*rackmanager.NodeInfo, map[string]string) {
	noHost, noLogin, token := switchNode("r1", 91), switchNode("r1", 92), switchNode("r1", 93)
	noHost.NodeId, noHost.HostEndpoint = "no-host", nil
	noLogin.NodeId, noLogin.HostEndpoint.Credentials = "no-login", nil
	token.NodeId = "token"
	token.HostEndpoint.Credentials = &rackmanager.Credentials{Auth: &rackmanager.Credentials_SessionToken{SessionToken: "t"}}
	name, loopback, port := switchNode("r1", 94), switchNode("r1", 95), switchNode("r1", 96)
	name.NodeId, name.HostEndpoint.Interface.IpAddress = "name", "switch.example"
	loopback.NodeId, loopback.HostEndpoint.Interface.IpAddress = "loopback", "::ffff:127.0.0.1"
	port.NodeId, port.HostEndpoint.Port = "port", 70_000
	noRack := switchNode("", 97)
	noRack.NodeId = "no-rack"
	return []*rackmanager.NodeInfo{compute("r1", "tray"), noHost, noLogin, token, name, loopback, port, noRack}, map[string]string{
		"tray":     "node tray is not a switch (type=compute_gb200_nvidia)",
		"no-host":  "missing host credentials for switch no-host",
		"no-login": "missing host credentials for switch no-login",
		"token":    "host endpoint credentials use unsupported session_token auth; use user_pass credentials",
		"name":     "invalid host endpoint for switch name: switch target host must be a valid IP address: switch.example",
		"loopback": "invalid host endpoint for switch loopback: switch target host is not allowed: ::ffff:127.0.0.1",
		"port":     "invalid host endpoint for switch port: port 70000 is out of range (must be 1-65535)",
		"no-rack":  "rack ID cannot be empty",
	}
}

// ran is a job that the fake agent was given.
type ran struct {
	cmd *rackbusv1.JobCommand
	// secrets are those of the command, nil when it has none.
	secrets proto.Message
	login   node.Credentials
}

// fakeSwitches is an agent of switches without any.
type fakeSwitches struct {
	h    *harness
	jobs chan ran

	mu    sync.Mutex
	asked map[string][]*rackbusv1.NodeRequest
}

// switches runs an agent that answers queries as told, and takes every job.
func (h *harness) switches(answers map[string]agent.QueryHandler) *fakeSwitches {
	f := &fakeSwitches{h: h, jobs: make(chan ran, 64), asked: make(map[string][]*rackbusv1.NodeRequest)}
	queries := make(map[string]agent.QueryHandler, len(answers))
	for op, answer := range answers {
		queries[op] = func(ctx context.Context, q *agent.Query) *rackbusv1.NodeReply {
			if _, err := q.Credentials(node.EndpointHost); err != nil {
				return agent.Refuse("unauthenticated", err.Error(), "")
			}
			f.mu.Lock()
			f.asked[op] = append(f.asked[op], proto.CloneOf(q.Request))
			f.mu.Unlock()
			return answer(ctx, q)
		}
	}
	handlers := make(map[job.Type]agent.Handler)
	for t, secrets := range map[job.Type]proto.Message{
		job.TypeSwitchCertificate: &rackbusv1.SwitchCertificateSecrets{}, job.TypeSwitchMtlsDisable: nil,
		job.TypeSwitchSdnFactoryDefaultReset: nil, job.TypeSwitchFactoryDefaultReset: nil,
		job.TypeSwitchSystemPasswordUpdate: &rackbusv1.SwitchPasswordSecrets{}, job.TypeSwitchSystemImageUpdate: nil,
		job.TypeConfigureScaleUpFabricManager2: nil, job.TypeFirmwareUpdate: nil,
	} {
		handlers[t] = func(_ context.Context, task *agent.Task) (agent.Outcome, error) {
			r := ran{cmd: proto.CloneOf(task.Command())}
			var err error
			if r.login, err = task.Credentials(node.EndpointHost); err != nil {
				return agent.Outcome{}, err
			}
			if secrets != nil && r.cmd.GetSecrets() != nil {
				r.secrets = proto.Clone(secrets)
				if err := task.Secrets(r.secrets); err != nil {
					return agent.Outcome{}, err
				}
			}
			f.jobs <- r
			return agent.Outcome{Description: "Completed"}, nil
		}
	}
	a, err := agent.New(agent.Options{
		Conn: h.connect("switch-agent"), Family: node.FamilySwitch, Instance: "fake", Opener: h.openers[node.FamilySwitch],
		Handlers: handlers, Queries: queries, MaxInFlight: 64, ParentPause: 20 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(h.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	h.t.Cleanup(func() {
		cancel()
		require.NoError(h.t, <-done)
	})
	require.Eventually(h.t, func() bool { return a.Ready() == nil }, 20*time.Second, 5*time.Millisecond)
	return f
}

// next returns the jobs that the agent ran, by node.
func (f *fakeSwitches) next(n int) map[string]ran {
	f.h.t.Helper()
	out := make(map[string]ran)
	limit := time.After(20 * time.Second)
	for range n {
		select {
		case r := <-f.jobs:
			require.Equal(f.h.t, plantedPassword, r.login.Password.Reveal())
			out[r.cmd.GetTarget().GetNodeId()] = r
		case <-limit:
			require.FailNow(f.h.t, "the agent was not given every job", "has %v", out)
		}
	}
	return out
}

// requests are what the agent was asked, in order.
func (f *fakeSwitches) requests(op string) []*rackbusv1.NodeRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]*rackbusv1.NodeRequest(nil), f.asked[op]...)
}

// answering replies with a document.
func answering(document string) agent.QueryHandler {
	return func(context.Context, *agent.Query) *rackbusv1.NodeReply {
		return &rackbusv1.NodeReply{V: 1, ResultJson: document}
	}
}

// changing replies after it has made sure that it may change the device now.
func changing(t *testing.T, reply *rackbusv1.NodeReply) agent.QueryHandler {
	return func(_ context.Context, q *agent.Query) *rackbusv1.NodeReply {
		if err := q.Guard().Check(); err != nil {
			t.Errorf("the node is not held: %v", err)
		}
		return proto.CloneOf(reply)
	}
}

func declining(message string) agent.QueryHandler {
	return func(context.Context, *agent.Query) *rackbusv1.NodeReply {
		return agent.Refuse("unauthenticated", message, "")
	}
}

// requireNowhere fails when a secret lies in the clear in what the broker stores or in
// the log. What is searched for control proves that the search finds things.
func (h *harness) requireNowhere(secrets ...string) {
	h.t.Helper()
	control := 0
	require.NoError(h.t, filepath.WalkDir(h.store, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		control += bytes.Count(content, []byte("sw-1"))
		for _, s := range secrets {
			if bytes.Contains(content, []byte(s)) {
				return fmt.Errorf("%s has a secret in the clear", path)
			}
		}
		return nil
	}))
	require.NotZero(h.t, control, "the search finds what is stored")
	for _, s := range secrets {
		require.NotContains(h.t, h.log.String(), s)
	}
}

// material writes TLS material of a domain below a root and returns it.
func material(t *testing.T, root, domain string) *switchtls.Material {
	t.Helper()
	ca, err := certs.NewCA()
	require.NoError(t, err)
	cert, key, err := ca.Issue(certs.Leaf{Role: "switch", Hosts: []string{"switch.lab"}})
	require.NoError(t, err)
	dir := filepath.Join(root, domain)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for name, content := range map[string][]byte{switchtls.FileCA: ca.PEM(), switchtls.FileCertificate: cert, switchtls.FileKey: key} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	m, err := switchtls.NewStore(switchtls.Settings{InstalledRoot: root}).Installed(domain)
	require.NoError(t, err)
	return m
}

// withTLS gives a server the material of domains.
func withTLS(s switchtls.Settings) func(*Options) {
	return func(o *Options) { o.SwitchTLS = switchtls.NewStore(s) }
}

func insecureSwitches(o *Options) {
	o.SwitchTLS = switchtls.NewStore(switchtls.Settings{Insecure: true})
}
