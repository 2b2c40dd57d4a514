// SPDX-License-Identifier: Apache-2.0

package config

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestIronic(t *testing.T) {
	const at = "diagnostics.ironic."
	for name, c := range map[string]struct {
		change func(*Ironic)
		// fault is the key of the expected one, "" for none.
		fault string
	}{
		"default":           {func(*Ironic) {}, ""},
		"open":              {func(i *Ironic) { i.Endpoint = "http://ironic:6385" }, ""},
		"basic":             {func(i *Ironic) { i.Endpoint, i.Auth, i.EnvironmentFile = "https://ironic", "http_basic", "f" }, ""},
		"keystone":          {func(i *Ironic) { i.Endpoint, i.Auth, i.EnvironmentFile = "https://ironic/v1", "keystone", "f" }, ""},
		"by address":        {func(i *Ironic) { i.NodeName = "bmc-{bmc_address}" }, ""},
		"no way in":         {func(i *Ironic) { i.Auth = "token" }, at + "auth"},
		"no URL":            {func(i *Ironic) { i.Endpoint = "ironic:6385" }, at + "endpoint"},
		"a secret":          {func(i *Ironic) { i.Endpoint = "https://me:pw@ironic" }, at + "endpoint"},
		"password in clear": {func(i *Ironic) { i.Endpoint, i.Auth, i.EnvironmentFile = "http://ironic", "http_basic", "f" }, at + "endpoint"},
		"no account":        {func(i *Ironic) { i.Endpoint, i.Auth = "https://ironic", "keystone" }, at + "environment_file"},
		"unused account":    {func(i *Ironic) { i.Endpoint, i.EnvironmentFile = "https://ironic", "f" }, at + "environment_file"},
		"account alone":     {func(i *Ironic) { i.EnvironmentFile = "f" }, at + "environment_file"},
		"authority alone":   {func(i *Ironic) { i.TLSCA = "f" }, at + "tls_ca"},
		"one name for all":  {func(i *Ironic) { i.NodeName = "rack-{rack_id}" }, at + "node_name"},
		"unknown name":      {func(i *Ironic) { i.NodeName = "{node_id}-{job_id}" }, at + "node_name"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Default()
			c.change(&cfg.Diagnostics.Ironic)
			var faults Faults
			cfg.checkIronic(&faults)
			if c.fault == "" {
				require.NoError(t, faults.err())
				return
			}
			require.ErrorContains(t, faults.err(), c.fault)
			require.NotContains(t, faults.err().Error(), "me:pw")
		})
	}
}
