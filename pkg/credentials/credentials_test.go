// SPDX-License-Identifier: Apache-2.0

package credentials_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/credentials"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/seal"
	"github.com/rackbus/rackbus/pkg/secret"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

func TestOpenOnlyWhereSealed(t *testing.T) {
	seed, public, err := seal.GenerateFamilyKey()
	require.NoError(t, err)
	sealer, err := seal.NewSealer(seal.PublicKeys{node.FamilyCompute: {public}})
	require.NoError(t, err)
	session, err := sealer.NewSession(node.FamilyCompute)
	require.NoError(t, err)
	opener, err := seal.NewOpener([]secret.Value{seed}, seal.OpenerOptions{})
	require.NoError(t, err)

	ref := node.Ref{RackID: "r/1", NodeID: "n 1"}
	login := node.Credentials{User: "root", Password: secret.New("pl4nted")}
	sealed, err := credentials.Seal(session, ref, node.EndpointBMC, login)
	require.NoError(t, err)
	require.NotContains(t, sealed.String(), "pl4nted")

	endpoint := &rackbusv1.DeviceEndpoint{Credentials: sealed}
	got, err := credentials.Open(opener, &rackbusv1.NodeTarget{RackId: "r/1", NodeId: "n 1", Bmc: endpoint}, node.EndpointBMC)
	require.NoError(t, err)
	require.Equal(t, "root", got.User)
	require.Equal(t, "pl4nted", got.Password.Reveal())

	for name, moved := range map[string]*rackbusv1.NodeTarget{
		"other node":     {RackId: "r/1", NodeId: "n 2", Bmc: endpoint},
		"other rack":     {RackId: "r/2", NodeId: "n 1", Bmc: endpoint},
		"other endpoint": {RackId: "r/1", NodeId: "n 1", Host: endpoint},
	} {
		kind := node.EndpointBMC
		if moved.GetHost() != nil {
			kind = node.EndpointHost
		}
		_, err := credentials.Open(opener, moved, kind)
		require.ErrorIs(t, err, seal.ErrTampered, name)
	}

	_, err = credentials.Open(opener, &rackbusv1.NodeTarget{NodeId: "n 1", Bmc: &rackbusv1.DeviceEndpoint{}}, node.EndpointBMC)
	require.ErrorIs(t, err, credentials.ErrNone)
}

func TestSecretsOpenOnlyForTheirJob(t *testing.T) {
	seed, public, err := seal.GenerateFamilyKey()
	require.NoError(t, err)
	sealer, err := seal.NewSealer(seal.PublicKeys{node.FamilyRack: {public}})
	require.NoError(t, err)
	session, err := sealer.NewSession(node.FamilyRack)
	require.NoError(t, err)
	opener, err := seal.NewOpener([]secret.Value{seed}, seal.OpenerOptions{})
	require.NoError(t, err)

	sealed, err := credentials.SealSecrets(session, "job-1", &rackbusv1.DownloadSecrets{AccessToken: "pl4nted"})
	require.NoError(t, err)
	require.NotContains(t, sealed.String(), "pl4nted")
	var got rackbusv1.DownloadSecrets
	require.NoError(t, credentials.OpenSecrets(opener, &rackbusv1.JobCommand{JobId: "job-1", Secrets: sealed}, &got))
	require.Equal(t, "pl4nted", got.GetAccessToken())
	require.ErrorIs(t, credentials.OpenSecrets(opener, &rackbusv1.JobCommand{JobId: "job-2", Secrets: sealed}, &got), seal.ErrTampered)
	require.ErrorIs(t, credentials.OpenSecrets(opener, &rackbusv1.JobCommand{JobId: "job-1"}, &got), credentials.ErrNone)
	none, err := seal.NewOpener(nil, seal.OpenerOptions{})
	require.NoError(t, err)
	require.ErrorIs(t, credentials.OpenSecrets(none, &rackbusv1.JobCommand{JobId: "job-1", Secrets: sealed}, &got), seal.ErrUnknownKey)
}
