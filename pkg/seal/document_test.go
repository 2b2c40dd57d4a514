// SPDX-License-Identifier: Apache-2.0

package seal_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/seal"
	"github.com/rackbus/rackbus/pkg/secret"
)

func TestDocument(t *testing.T) {
	seed, public, err := seal.GenerateFamilyKey()
	require.NoError(t, err)
	sealer, err := seal.NewSealer(seal.PublicKeys{node.FamilyCompute: {public}})
	require.NoError(t, err)
	session, err := sealer.NewSession(node.FamilyCompute)
	require.NoError(t, err)
	opener, err := seal.NewOpener([]secret.Value{seed}, seal.OpenerOptions{})
	require.NoError(t, err)

	text, err := seal.EncodeDocument(session, "environment", []byte("TOKEN=pl4nted"))
	require.NoError(t, err)
	require.NotContains(t, string(text), "pl4nted")
	plain, err := seal.OpenDocument(opener, "environment", text)
	require.NoError(t, err)
	require.Equal(t, "TOKEN=pl4nted", plain.Reveal())

	for name, broken := range map[string][]byte{
		"other kind": bytes.Replace(text, []byte("environment"), []byte("credentials"), 1),
		"plain text": []byte("TOKEN=pl4nted"),
		"empty":      nil,
		"cut":        text[:len(text)/2],
	} {
		_, err := seal.OpenDocument(opener, "environment", broken)
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), "pl4nted")
	}
	_, err = seal.OpenDocument(opener, "credentials", bytes.Replace(text, []byte(`"environment"`), []byte(`"credentials"`), 1))
	require.ErrorIs(t, err, seal.ErrTampered)
	stranger, _, err := seal.GenerateFamilyKey()
	require.NoError(t, err)
	other, err := seal.NewOpener([]secret.Value{stranger}, seal.OpenerOptions{})
	require.NoError(t, err)
	_, err = seal.OpenDocument(other, "environment", text)
	require.Error(t, err)
}
