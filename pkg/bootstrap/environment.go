// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
)

// environmentHead explains the file. Values have no quotes: systemd, containers and
// shells would not agree on them.
const environmentHead = "# Variables of nats-server. The file holds secrets: mode 0600.\n"

// variables are lines NAME=value.
type variables []string

func (v *variables) set(name, value string) { *v = append(*v, name+"="+value) }

func (v variables) text() string { return strings.Join(v, "\n") + "\n" }

// without leaves out those whose names a file has.
func (v variables) without(file string) variables {
	return slices.DeleteFunc(slices.Clone(v), func(line string) bool {
		name, _, _ := strings.Cut(line, "=")
		return slices.ContainsFunc(strings.Split(file, "\n"), func(l string) bool { return strings.HasPrefix(l, name+"=") })
	})
}

// variables of the i-th nats-server.
func (b *bundle) variables(i int, name string) (variables, error) {
	_, port, err := splitHost(b.NATSHosts[i], clientPort)
	if err != nil {
		return nil, err
	}
	var v variables
	v.set("RB_NATS_CONF", filepath.Join(b.to, configurations[b.Profile][0]))
	v.set("RB_NATS_NAME", name)
	v.set("RB_NATS_LISTEN", "0.0.0.0:"+port)
	v.set("RB_NATS_MONITOR", "127.0.0.1:"+monitorPort)
	v.set("RB_NATS_CERT", filepath.Join(b.to, "tls", "nats.crt"))
	v.set("RB_NATS_KEY", filepath.Join(b.to, "tls", "nats.key"))
	v.set("RB_NATS_CA", filepath.Join(b.to, "tls", "ca.crt"))
	if b.Profile == Leaf {
		err = b.leafVariables(&v)
	} else {
		err = b.hubVariables(&v)
	}
	if err != nil {
		return nil, err
	}
	for _, user := range busUsers() {
		if b.Profile == Leaf && user != userSys && !strings.HasPrefix(user, "agent-") {
			continue
		}
		public, err := b.secrets.user(user)
		if err != nil {
			return nil, err
		}
		v.set(variable(user), public)
	}
	return v, nil
}

func (b *bundle) hubVariables(v *variables) error {
	key, err := b.secrets.text(filepath.Join(b.secrets.keys(), "at-rest.key"))
	if err != nil {
		return err
	}
	defer key.Wipe()
	v.set("RB_NATS_STORE", b.NATSDir)
	v.set("RB_AT_REST_KEY", key.Reveal())
	leafs := "127.0.0.1"
	if b.LeafListener {
		leafs = "0.0.0.0"
	}
	v.set("RB_NATS_LEAF_LISTEN", leafs+":"+leafPort)
	if b.Profile != Cluster {
		return nil
	}
	v.set("RB_NATS_CLUSTER_LISTEN", "0.0.0.0:"+clusterPort)
	for i, text := range b.NATSHosts {
		host, _, err := splitHost(text, clientPort)
		if err != nil {
			return err
		}
		v.set(fmt.Sprintf("RB_NATS_ROUTE_%d", i), "nats://"+net.JoinHostPort(host, clusterPort))
	}
	return nil
}

func (b *bundle) leafVariables(v *variables) error {
	urls := make([]string, len(b.HubHosts))
	for i, text := range b.HubHosts {
		host, port, err := splitHost(text, leafPort)
		if err != nil {
			return err
		}
		urls[i] = "nats://" + host + ":" + port
	}
	v.set("RB_NATS_HUB", "["+strings.Join(urls, ",")+"]")
	if _, err := b.secrets.user(userLeaf); err != nil {
		return err
	}
	seed, err := b.secrets.text(b.secrets.seed(userLeaf))
	if err != nil {
		return err
	}
	defer seed.Wipe()
	v.set("RB_NATS_LEAF_SEED", seed.Reveal())
	return nil
}
