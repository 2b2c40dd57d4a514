// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"

	"github.com/rackbus/rackbus/pkg/access"
)

func defaultAuth() Auth {
	return Auth{DefaultRole: access.Operator.String(), Viewers: []string{}, Operators: []string{}, Admins: []string{}}
}

func (c *Config) checkAuth(faults *Faults) {
	if _, err := access.ParseRole(c.Auth.DefaultRole); err != nil {
		faults.add("auth.default_role", c.Auth.DefaultRole, "must be none, viewer, operator or admin")
	}
	for _, list := range []struct {
		key      string
		patterns []string
	}{{"viewers", c.Auth.Viewers}, {"operators", c.Auth.Operators}, {"admins", c.Auth.Admins}} {
		for i, text := range list.patterns {
			if err := access.CheckPattern(text); err != nil {
				faults.add(fmt.Sprintf("auth.%s[%d]", list.key, i), text, err.Error())
			}
		}
	}
}

// AccessPolicy returns who may do what.
func (c *Config) AccessPolicy() (*access.Policy, error) {
	role, err := access.ParseRole(c.Auth.DefaultRole)
	if err != nil {
		return nil, fmt.Errorf("auth.default_role: %w", err)
	}
	p, err := access.NewPolicy(access.Settings{
		Default: role, Viewers: c.Auth.Viewers, Operators: c.Auth.Operators, Admins: c.Auth.Admins,
	})
	if err != nil {
		return nil, fmt.Errorf("auth: %w", err)
	}
	return p, nil
}
