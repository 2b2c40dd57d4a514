// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/cmd/rackctl/internal/cli"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

var success = &rackmanager.OperationResponse{Status: rackmanager.ReturnCode_RETURN_CODE_SUCCESS, Message: "3 added, 0 failed"}

// examples are the inventories of the documentation; both say the same.
var examples = []string{"inventory.csv", "inventory.yaml"}

func example(name string) string {
	return filepath.Join("..", "..", "..", "..", "docs", "examples", name)
}

func TestInventoryExamples(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.says("CreateNodes", &rackmanager.CreateNodesResponse{Response: success})
	var sent []*rackmanager.CreateNodesRequest
	for _, name := range examples {
		got := l.runIn(with(map[string]string{"LAB_BMC_PASSWORD": "bmc-pw", "LAB_NVOS_PASSWORD": "nvos-pw"}), "nodes", "create", "-f", example(name))
		require.Equal(t, cli.ExitOK, got.code, got.stderr)
		require.Equal(t, "3 added, 0 failed\n", got.stdout)
		sent = append(sent, last[*rackmanager.CreateNodesRequest](l, "CreateNodes"))
	}
	require.True(t, proto.Equal(sent[0], sent[1]), "%v\n%v", sent[0], sent[1])
	nodes := sent[0].GetNodes().GetNodes()
	require.Len(t, nodes, 3)
	require.Equal(t, rackmanager.NodeType_COMPUTE_GB200_NVIDIA, nodes[0].GetType())
	require.Equal(t, "bmc-pw", nodes[0].GetBmcEndpoint().GetCredentials().GetUserPass().GetPassword())
	require.Equal(t, "nvos-pw", nodes[1].GetHostEndpoint().GetCredentials().GetUserPass().GetPassword())
	require.EqualValues(t, 8443, nodes[2].GetBmcEndpoint().GetPort())
}

func TestInventoryDryRun(t *testing.T) {
	t.Parallel()
	l := furnished(t)
	file := l.write("nodes.csv", []byte(`rack,node,type,bmc_address,bmc_mac
lab,tray-01,compute_gb200_nvidia,10.0.0.1,02:00:00:00:00:01
lab,tray-02,compute_gb200_nvidia,10.9.9.9,02:00:00:00:00:02
lab,tray-77,compute_gb200_wiwynn,10.0.0.77,02:00:00:00:00:77
`))
	got := l.run("nodes", "create", "-f", file, "--dry-run")
	require.Equal(t, cli.ExitOK, got.code, got.stderr)
	golden(t, "create-dry-run.table", got.stdout)
	require.Empty(t, l.callsOf("CreateNodes"))
	got = l.run("nodes", "update", "-f", file, "--dry-run", "-o", "json")
	require.Equal(t, cli.ExitOK, got.code, got.stderr)
	golden(t, "update-dry-run.json", got.stdout)
	require.Empty(t, l.callsOf("UpdateNode"))
}

// All that is wrong with a file is told at once, with its line.
func TestInventoryFaults(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for _, tt := range []struct {
		name, content string
		want          []string
	}{
		{"a.csv", "rack,node,typ\n", []string{`a.csv:1: unknown column "typ"`}},
		{"b.csv", "rack,rack,node\n", []string{"b.csv:1: column rack is there twice"}},
		{"c.csv", "rack,node,type,bmc_address\n# comment\nlab,t1,compute_gb200_nvidia,10.0.0.1,x\n", []string{"c.csv:3: 5 fields where the head has 4 columns"}},
		{"d.csv", "rack,node,type,bmc_address,bmc_mac,bmc_port\n,t1,nonsense,bmc.example,zz,99999\nlab,t2,compute_gb200_nvidia,,,\nlab,t2,compute_gb200_nvidia,10.0.0.2,,\n", []string{
			"d.csv:2: rack is missing", `d.csv:2: unknown type "nonsense"`, `d.csv:2: bmc_address "bmc.example" is no IP address`,
			`d.csv:2: bmc_mac "zz" is no MAC address`, `d.csv:2: bmc_port "99999" is no port`,
			"d.csv:3: neither bmc_address nor host_address is given", "d.csv:4: node lab/t2 was there already in line 3",
		}},
		{"e.csv", "rack,node,type,bmc_address,bmc_password_env\nlab,t1,compute_gb200_nvidia,10.0.0.1,NOWHERE\n", []string{"e.csv:2: bmc_password_env: the variable NOWHERE is not set"}},
		{"f.csv", "rack,node,type,bmc_address,bmc_password_file\nlab,t1,compute_gb200_nvidia,10.0.0.1,nothing.pw\n", []string{"f.csv:2: bmc_password_file:", "no such file"}},
		{"g.csv", "rack,node\n\"lab", []string{"g.csv:2:"}},
		{"h.csv", "", []string{"has no nodes"}},
		{"i.yaml", "nodes:\n  - rack: lab\n    node: t1\n    typ: x\n    bmc:\n      addr: 10.0.0.1\n", []string{`i.yaml:4: unknown key "typ"`, `i.yaml:6: unknown key "bmc_addr"`}},
		{"j.yaml", "node: []\n", []string{`j.yaml:1: unknown key "node"; there are defaults and nodes`}},
		{"k.yaml", "nodes:\n  - lab\n", []string{"k.yaml:2: a node is a mapping"}},
		{"l.yaml", "nodes:\n  - rack: [a]\n", []string{"l.yaml:2: rack is no text"}},
		{"m.yaml", "nodes: {}\n", []string{"m.yaml:1: nodes is no list"}},
		{"n.yaml", "nodes:\n\t- x\n", []string{"line 2"}},
		{"o.json", "{\"nodes\": [\n {\"rack\": \"lab\", \"node\": \"t1\", \"type\": \"compute_gb200_nvidia\",\n  \"bmc\": {\"mac\": \"02:00:00:00:00:01\"}}]}", []string{"o.json:2: bmc_mac is given without bmc_address"}},
		{"p.csv", "rack,node,type,bmc_address,bmc_password,bmc_password_env\nlab,t1,compute_gb200_nvidia,10.0.0.1,a,B\n", []string{"p.csv:2: bmc: give one of"}},
	} {
		path := l.write(tt.name, []byte(tt.content))
		got := l.run("nodes", "create", "-f", path)
		require.Equal(t, cli.ExitUsage, got.code, "%s: %s", tt.name, got.stderr)
		for _, w := range tt.want {
			require.Contains(t, got.stderr, w, tt.name)
		}
	}
	require.Equal(t, cli.ExitUsage, l.run("nodes", "create", "-f", l.path("nothing.csv")).code)
	require.Equal(t, cli.ExitUsage, l.run("nodes", "create").code)
}

func TestInventoryPasswords(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.says("CreateNodes", &rackmanager.CreateNodesResponse{Response: success})
	sent := func() []*rackmanager.NodeInfo {
		return last[*rackmanager.CreateNodesRequest](l, "CreateNodes").GetNodes().GetNodes()
	}
	password := func(n *rackmanager.NodeInfo) string {
		return n.GetBmcEndpoint().GetCredentials().GetUserPass().GetPassword()
	}

	open := l.write("open.csv", []byte("rack,node,type,bmc_address,bmc_password\nlab,t1,compute_gb200_nvidia,10.0.0.1,pl4nted\n"))
	require.Equal(t, cli.ExitOK, l.run("nodes", "create", "-f", open, "--user", "admin").code)
	require.Equal(t, "pl4nted", password(sent()[0]))
	require.NoError(t, os.Chmod(open, 0o644))
	got := l.run("nodes", "create", "-f", open)
	require.Equal(t, cli.ExitUsage, got.code)
	require.Contains(t, got.stderr, "others can read")
	require.NotContains(t, got.stderr, "pl4nted")

	spaced := l.write("spaced.yaml", []byte("nodes:\n  - {rack: lab, node: t1, type: compute_gb200_nvidia, bmc: {address: 10.0.0.1, password: ' pl4nted '}}\n"))
	require.Equal(t, cli.ExitOK, l.run("nodes", "create", "-f", spaced, "--user", "admin").code)
	require.Equal(t, " pl4nted ", password(sent()[0]), "a quoted password is taken as it is")

	bare := l.write("bare.csv", []byte("rack,node,type,bmc_address,bmc_user\nlab,t1,compute_gb200_nvidia,10.0.0.1,\nlab,t2,compute_gb200_nvidia,10.0.0.2,root2\n"))
	l.write("pw", []byte("from-file\n"))
	require.Equal(t, cli.ExitOK, l.run("nodes", "create", "-f", bare, "--user", "admin", "--password-file", l.path("pw")).code)
	require.Equal(t, "from-file", password(sent()[1]))
	require.Equal(t, "admin", sent()[0].GetBmcEndpoint().GetCredentials().GetUserPass().GetUsername())
	require.Equal(t, "root2", sent()[1].GetBmcEndpoint().GetCredentials().GetUserPass().GetUsername())

	require.Equal(t, cli.ExitOK, l.runIn(with(map[string]string{"RACKCTL_BMC_PASSWORD": "from-env"}), "nodes", "create", "-f", bare).code)
	require.Equal(t, "from-env", password(sent()[0]))

	asked := 0
	ask := func(env *cli.Env) { env.Ask = func(string) ([]byte, error) { asked++; return []byte("typed"), nil } }
	require.Equal(t, cli.ExitOK, l.runIn(ask, "nodes", "create", "-f", bare).code)
	require.Equal(t, "typed", password(sent()[1]))
	require.Equal(t, 1, asked, "one question for all nodes")

	require.Equal(t, cli.ExitUsage, l.run("nodes", "create", "-f", bare, "--password", "pl4nted").code)
	// Standard input, and only the nodes that are named.
	got = l.runIn(func(env *cli.Env) {
		env.Stdin = strings.NewReader("rack,node,type,bmc_address\nlab,t1,compute_gb200_nvidia,10.0.0.1\nlab,t2,compute_gb200_nvidia,10.0.0.2\n")
	}, "nodes", "create", "-f", "-", "lab/t2")
	require.Equal(t, cli.ExitOK, got.code, got.stderr)
	require.Len(t, sent(), 1)
	require.Equal(t, cli.ExitNotFound, l.run("nodes", "create", "-f", bare, "t9").code)
}

func TestNodesCreateRefused(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.says("CreateNodes", &rackmanager.CreateNodesResponse{Response: &rackmanager.OperationResponse{
		Status: rackmanager.ReturnCode_RETURN_CODE_FAILURE, Message: "t1: node t1 already exists in rack lab\n0 added, 1 failed",
	}})
	file := l.write("n.csv", []byte("rack,node,type,bmc_address\nlab,t1,compute_gb200_nvidia,10.0.0.1\n"))
	got := l.run("nodes", "create", "-f", file)
	require.Equal(t, cli.ExitFailed, got.code)
	require.Contains(t, got.stderr, "t1: node t1 already exists in rack lab\n  0 added, 1 failed")
}

func TestNodesDelete(t *testing.T) {
	t.Parallel()
	l := furnished(t)
	l.says("DeleteNode", &rackmanager.DeleteNodeResponse{Response: success})
	require.Equal(t, cli.ExitUsage, l.run("nodes", "delete", "lab/tray-01").code, "nobody can be asked")
	no := func(env *cli.Env) { env.Confirm = func(string) (string, error) { return "", nil } }
	require.Equal(t, cli.ExitInterrupted, l.runIn(no, "nodes", "delete", "lab/tray-01").code)
	require.Equal(t, cli.ExitOK, l.run("nodes", "delete", "lab/tray-01", "--dry-run").code)
	require.Equal(t, cli.ExitNotFound, l.run("nodes", "delete", "lab/tray-99", "--dry-run").code)
	require.Empty(t, l.callsOf("DeleteNode"))
	yes := func(env *cli.Env) { env.Confirm = func(string) (string, error) { return "y", nil } }
	got := l.runIn(yes, "nodes", "delete", "--rack", "lab", "tray-01", "tray-02")
	require.Equal(t, cli.ExitOK, got.code, got.stderr)
	require.Len(t, l.callsOf("DeleteNode"), 2)
}
