// SPDX-License-Identifier: Apache-2.0

package ironic

import (
	"github.com/rackbus/rackbus/pkg/config"
	"github.com/rackbus/rackbus/pkg/seal"
)

// FromConfig returns the options as configured; ok is false where there is no
// Ironic. Opener opens the credentials and is asked for only where there are some.
// What cannot be opened is told now, not by the first run.
func FromConfig(c *config.Config, opener func() (*seal.Opener, error)) (o Options, ok bool, err error) {
	i := &c.Diagnostics.Ironic
	if i.Endpoint == "" {
		return Options{}, false, nil
	}
	o = Options{Endpoint: i.Endpoint, Auth: Auth(i.Auth), NodeName: i.NodeName, Request: i.RequestTimeout}
	if o.Roots, err = Roots(i.TLSCA); err != nil {
		return Options{}, false, err
	}
	if o.Auth == AuthNone {
		return o, true, nil
	}
	seals, err := opener()
	if err != nil {
		return Options{}, false, err
	}
	o.Environment = EnvironmentFile(i.EnvironmentFile, seals)
	plain, err := o.Environment()
	if err != nil {
		return Options{}, false, err
	}
	defer plain.Wipe()
	env, err := parseEnvironment(plain.Bytes())
	if err != nil {
		return Options{}, false, err
	}
	return o, true, env.check(o.Auth)
}
