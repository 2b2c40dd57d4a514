// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"testing"

	"github.com/rackbus/rackbus/test/cluster"
)

// part of a test of one site; all build on the same processes.
type part struct {
	name string
	run  func(*testing.T)
}

func run(t *testing.T, parts []part) {
	for _, p := range parts {
		if !t.Run(p.name, p.run) {
			return
		}
	}
}

// TestSingle: one nats-server. Agents cannot even read the commands of others.
func TestSingle(t *testing.T) {
	s := start(t, cluster.Options{})
	run(t, []part{
		{"every process works", s.work},
		{"what the jobs service does by itself", s.extras},
		{"strangers stay out", s.requireStrangersStayOut},
		{"rights", func(t *testing.T) {
			all := refused()
			for _, agent := range []string{"agent-compute", "agent-powershelf", "agent-switch"} {
				l := all[agent]
				l.publish = append(l.publish, leaderReads()...)
				all[agent] = l
			}
			s.requireRefused(t, all)
		}},
		{"credentials", func(t *testing.T) { s.requireSealed(t, "operator") }},
		{"subscriber", s.requireSubscriberReads},
		{"outsider", s.requireOutsiderReads},
	})
}

// TestCluster: three nats-servers. Agents read at the leader, and with that the commands of others, but not what is
// sealed in them.
func TestCluster(t *testing.T) {
	s := start(t, cluster.Options{Brokers: 3})
	run(t, []part{
		{"every process works", s.work},
		{"rights", func(t *testing.T) { s.requireRefused(t, refused()) }},
		{"credentials", func(t *testing.T) { s.requireSealed(t, "agent-compute") }},
	})
}

// TestLeaf: the agents are at a site of their own.
func TestLeaf(t *testing.T) {
	s := start(t, cluster.Options{Leaf: true})
	run(t, []part{
		{"every process works", s.work},
		{"rights at the leaf", func(t *testing.T) {
			agents := refused()
			for _, central := range []string{"api", "jobs", "subscriber", "ext"} {
				delete(agents, central)
			}
			s.requireRefused(t, agents)
		}},
		{"a hostile site", s.requireHostileSiteContained},
	})
}
