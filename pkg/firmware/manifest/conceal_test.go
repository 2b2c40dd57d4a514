// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/firmware/manifest"
)

func TestConceal(t *testing.T) {
	of := func(locations ...string) string {
		var list []string
		for _, l := range locations {
			list = append(list, `{"Location":"`+l+`","LocationType":"https","Type":"Firmware"}`)
		}
		return `{"ProductName":"A","Milestones":[{"Name":"1","BoardSKUs":[{"Type":"Compute Node","Components":{"Firmware":[
			{"Component":"HMC","Type":"Prod","Locations":[` + strings.Join(list, ",") + `]}]}}],"Large":12345678901234567890}]}`
	}
	plain := of("https://files.invalid/a.fwpkg", "/srv/fw/b.fwpkg", "file:///srv/fw/c.fwpkg")
	kept, err := manifest.Conceal([]byte(plain))
	require.NoError(t, err)
	require.Equal(t, plain, string(kept), "nothing is secret, so nothing changes")

	kept, err = manifest.Conceal([]byte(of("https://user:s3cret@files.invalid/a.fwpkg", "https://files.invalid/b.fwpkg?X-Amz-Signature=s3cret#x",
		"https://files.invalid/c.fwpkg", "https://files.invalid/%zz?s3cret")))
	require.NoError(t, err)
	require.NotContains(t, string(kept), "s3cret")
	require.Contains(t, string(kept), "12345678901234567890")

	m, err := manifest.Parse(kept)
	require.NoError(t, err)
	artifacts, err := m.Artifacts()
	require.NoError(t, err)
	got := map[string]bool{}
	for _, a := range artifacts {
		got[a.Path] = a.Concealed()
	}
	require.Equal(t, map[string]bool{"prod/a.fwpkg": true, "prod/b.fwpkg": true, "prod/c.fwpkg": false}, got)

	_, err = manifest.Conceal([]byte("no JSON"))
	require.ErrorIs(t, err, &manifest.Error{Kind: manifest.KindSyntax})
}
