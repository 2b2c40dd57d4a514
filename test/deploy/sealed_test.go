// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/credentials"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/seal"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/test/cluster"
)

// lastMessage asks the leader of a stream for the last message of a subject.
func lastMessage(ctx context.Context, nc *nats.Conn, stream, subject string) ([]byte, error) {
	request, err := json.Marshal(map[string]string{"last_by_subj": subject})
	if err != nil {
		return nil, err
	}
	reply, err := nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream, request)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Error   json.RawMessage `json:"error"`
		Message struct {
			Data []byte `json:"data"`
		} `json:"message"`
	}
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return nil, err
	}
	if answer.Error != nil {
		return nil, nats.ErrMsgNotFound
	}
	return answer.Message.Data, nil
}

// requireSealed: the credentials of a switch open with the keys of the switch agent and with nobody else's, whoever gets
// hold of the command. reader is who reads it.
func (s *scene) requireSealed(t *testing.T, reader string) {
	ctx := within(t)
	agent := s.Processes(cluster.RoleSwitchAgent)[0]
	require.NoError(t, agent.Pause())
	id := s.installImage(ctx, t)

	nc, err := s.As(reader)
	require.NoError(t, err)
	defer nc.Close()
	raw, err := lastMessage(ctx, nc, "KV_rb", aCommand)
	require.NoError(t, err)
	command := &rackbusv1.JobCommand{}
	require.NoError(t, proto.Unmarshal(raw, command))
	require.Equal(t, "switch-0001", command.GetTarget().GetNodeId())

	for role, families := range map[string][]node.Family{
		"compute-agent": {node.FamilyCompute}, "powershelf-agent": {node.FamilyPowerShelf}, "jobs": {node.FamilyRack}, "switch-agent": {node.FamilySwitch},
	} {
		dir := filepath.Join(s.Site.Dir, "install", role, "keys")
		for _, f := range node.KeyFamilies() {
			seeds, err := seal.LoadSeeds(dir, f)
			if f != families[0] {
				require.Error(t, err, "%s has the seed of family %s", role, f)
				continue
			}
			require.NoError(t, err)
			opener, err := seal.NewOpener(seeds, seal.OpenerOptions{})
			require.NoError(t, err)
			login, err := credentials.Open(opener, command.GetTarget(), node.EndpointHost)
			if role == "switch-agent" {
				require.NoError(t, err)
				require.NotEmpty(t, login.User)
				continue
			}
			require.ErrorIs(t, err, seal.ErrUnknownKey, role)
		}
	}
	_, err = seal.LoadSeeds(filepath.Join(s.Site.Dir, "install", "api", "keys"), node.FamilySwitch)
	require.Error(t, err, "the API has public keys only")

	require.NoError(t, agent.Resume())
	job, err := s.WaitJob(ctx, id)
	require.NoError(t, err)
	require.Equal(t, rackmanager.JobExecutionState_JOB_EXECUTION_STATE_COMPLETED, job.GetExecutionState(), "%v", job)
}
