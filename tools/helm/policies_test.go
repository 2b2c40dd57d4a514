// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	networkingv1 "k8s.io/api/networking/v1"
)

// reaches returns the rules' peers by port; a nil peer is everybody.
func reaches(t *testing.T, ports []networkingv1.NetworkPolicyPort, peers []networkingv1.NetworkPolicyPeer, into map[string][]networkingv1.NetworkPolicyPeer) {
	t.Helper()
	require.NotEmpty(t, ports, "a rule for all ports")
	for _, p := range ports {
		if len(peers) == 0 {
			into[p.Port.String()] = append(into[p.Port.String()], networkingv1.NetworkPolicyPeer{})
		}
		into[p.Port.String()] = append(into[p.Port.String()], peers...)
	}
}

// TestPolicies: each process gets to what it needs, and to nothing else.
func TestPolicies(t *testing.T) {
	hardware := map[string][]string{
		"compute-agent": {"443", "22"}, "switch-agent": {"443", "22", "9370", "9352", "9339"}, "powershelf-agent": {"443"},
		"jobs": {"443", "80"}, "api": nil,
	}
	each(t, func(t *testing.T, r release) {
		for name, w := range r.workloads {
			if w.component == "nats" {
				continue
			}
			p, found := r.policies[name]
			require.True(t, found, name)
			require.ElementsMatch(t, []networkingv1.PolicyType{"Ingress", "Egress"}, p.Spec.PolicyTypes)
			in, out := map[string][]networkingv1.NetworkPolicyPeer{}, map[string][]networkingv1.NetworkPolicyPeer{}
			for _, rule := range p.Spec.Ingress {
				reaches(t, rule.Ports, rule.From, in)
			}
			for _, rule := range p.Spec.Egress {
				reaches(t, rule.Ports, rule.To, out)
			}
			want := []string{"metrics"}
			if w.component == "api" {
				for _, port := range w.container(t).Ports[1:] { // all but metrics
					want = append(want, strconv.Itoa(int(port.ContainerPort)))
				}
			}
			require.ElementsMatch(t, want, keys(in), name)
			want = append([]string{"53", "4222"}, hardware[w.component]...)
			if _, extra := out["4317"]; extra { // testdata/full.yaml
				want = append(want, "4317")
			}
			require.ElementsMatch(t, want, keys(out), name)
			for _, port := range hardware[w.component] {
				for _, peer := range out[port] {
					require.NotNil(t, peer.IPBlock, "%s: %s", name, port)
				}
			}
			requireBusReached(t, r, out["4222"])
		}
	})
}

func keys(m map[string][]networkingv1.NetworkPolicyPeer) []string {
	out := make([]string, 0, len(m))
	for key := range m {
		out = append(out, key)
	}
	return out
}

// requireBusReached: the policies of processes and of the NATS servers agree with each other.
func requireBusReached(t *testing.T, r release, peers []networkingv1.NetworkPolicyPeer) {
	t.Helper()
	require.Len(t, peers, 1)
	for name, w := range r.workloads {
		if w.component != "nats" {
			continue
		}
		require.True(t, selects(t, peers[0].PodSelector, &w), name)
		var from []networkingv1.NetworkPolicyPeer
		for _, p := range r.policies {
			if selects(t, &p.Spec.PodSelector, &w) {
				for _, rule := range p.Spec.Ingress {
					if rule.Ports[0].Port.String() == "4222" {
						from = append(from, rule.From...)
					}
				}
			}
		}
		for client, c := range r.workloads {
			if c.component != "nats" {
				require.True(t, slices.ContainsFunc(from, func(p networkingv1.NetworkPolicyPeer) bool {
					return p.PodSelector != nil && selects(t, p.PodSelector, &c)
				}), "%s gets to %s", client, name)
			}
		}
	}
}

// TestPeersAreUsed: what the values name as peers is what the policies have.
func TestPeersAreUsed(t *testing.T) {
	r := install(t, "full")
	api := r.policies["rb-api"]
	require.Equal(t, "10.1.0.0/16", api.Spec.Ingress[1].From[0].IPBlock.CIDR)
	require.Equal(t, "monitoring", api.Spec.Ingress[0].From[0].NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"])
	nats := r.policies["rb-nats"]
	require.Len(t, nats.Spec.Ingress[0].From, 2)
	require.Equal(t, "10.2.0.0/16", nats.Spec.Ingress[2].From[0].IPBlock.CIDR)
	own := install(t, "own-bus").policies["rackbus-switch-agent"]
	require.Equal(t, "192.0.2.0/24", own.Spec.Egress[1].To[0].IPBlock.CIDR)
}
