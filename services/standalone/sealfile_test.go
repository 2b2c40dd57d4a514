// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/ironic"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/seal"
	computeagent "github.com/rackbus/rackbus/services/compute-agent"
)

func TestKeysSeal(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, seal.WriteKeys(keys, node.KeyFamilies()))
	plain, sealed := filepath.Join(t.TempDir(), "env"), filepath.Join(t.TempDir(), "env.sealed")
	require.NoError(t, os.WriteFile(plain, []byte("# of the validator\nTOKEN=pl4nted\n"), 0o600))
	var stdout, stderr bytes.Buffer
	require.Zero(t, Main([]string{"keys", "seal", "--keys", keys, "--in", plain, "--out", sealed}, &stdout, &stderr), stderr.String())
	text, err := os.ReadFile(sealed)
	require.NoError(t, err)
	require.NotContains(t, string(text), "pl4nted")

	seeds, err := seal.LoadSeeds(keys, node.FamilyCompute)
	require.NoError(t, err)
	opener, err := seal.NewOpener(seeds, seal.OpenerOptions{})
	require.NoError(t, err)
	content, err := seal.OpenDocument(opener, computeagent.EnvironmentKind, text)
	require.NoError(t, err)
	require.Contains(t, content.Reveal(), "TOKEN=pl4nted")

	require.Zero(t, Main([]string{"keys", "seal", "--keys", keys, "--in", plain}, &stdout, &stderr))
	require.Contains(t, stdout.String(), `"key_id"`)
	require.NotContains(t, stdout.String(), "pl4nted")
	require.NoError(t, os.WriteFile(plain, []byte("no variable, s3cret\n"), 0o600))
	require.Equal(t, 1, Main([]string{"keys", "seal", "--keys", keys, "--in", plain}, &stdout, &stderr))
	require.Contains(t, stderr.String(), "line 1")
	require.NotContains(t, stderr.String(), "s3cret")
	require.Equal(t, 2, Main([]string{"keys", "seal"}, &stdout, &stderr))

	// What is for Ironic is of no use to the validator, and has other variables.
	forIronic := []string{"keys", "seal", "--for", "ironic", "--keys", keys, "--in", plain, "--out", sealed}
	require.Equal(t, 1, Main(forIronic, &stdout, &stderr))
	require.NoError(t, os.WriteFile(plain, []byte("OS_PASSWORD=s3cret\n"), 0o600))
	require.Zero(t, Main(forIronic, &stdout, &stderr), stderr.String())
	text, err = os.ReadFile(sealed)
	require.NoError(t, err)
	content, err = seal.OpenDocument(opener, ironic.EnvironmentKind, text)
	require.NoError(t, err)
	require.Equal(t, "OS_PASSWORD=s3cret\n", content.Reveal())
	_, err = seal.OpenDocument(opener, computeagent.EnvironmentKind, text)
	require.Error(t, err)
	require.Equal(t, 1, Main([]string{"keys", "seal", "--for", "x", "--keys", keys, "--in", plain}, &stdout, &stderr))
	require.NotContains(t, stderr.String()+stdout.String(), "s3cret")
}
