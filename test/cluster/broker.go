// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/rackbus/rackbus/pkg/bus/broker/brokertest"
)

// atRestVariable carries the key of the store to nats-server: it is no part of its configuration file.
const atRestVariable = "RB_JS_KEY"

// brokerConfig is the configuration of one nats-server.
type brokerConfig struct {
	name, store, tlsDir string
	port, clusterPort   int
	monitorPort         int
	// plain leaves the store unencrypted.
	plain bool
	// routes are the cluster ports of all members; one member has no cluster.
	routes []int
}

// text is the file in the form of nats-server, with the settings Rackbus asks for: every acknowledged write is on
// disk, the disk is encrypted, and only certificates of the own authority get in.
func (b brokerConfig) text() string {
	var t strings.Builder
	tls := fmt.Sprintf("cert_file: %q, key_file: %q, ca_file: %q, verify: true, timeout: 5",
		filepath.Join(b.tlsDir, "nats.crt"), filepath.Join(b.tlsDir, "nats.key"), filepath.Join(b.tlsDir, "ca.crt"))
	fmt.Fprintf(&t, "server_name: %s\nhost: 127.0.0.1\nport: %d\nhttp: \"127.0.0.1:%d\"\nmax_payload: 8MB\n", b.name, b.port, b.monitorPort)
	fmt.Fprintf(&t, "tls { %s, handshake_first: true }\n", tls)
	encryption := "cipher: chachapoly, key: $" + atRestVariable
	if b.plain {
		encryption = ""
	}
	fmt.Fprintf(&t, `jetstream {
  store_dir: %q
  max_mem: 256MB
  max_file: 50GB
  sync_interval: always
  %s
  limits { batch { max_inflight_per_stream: 500, max_inflight_total: 2000 } }
}
`, b.store, encryption)
	if len(b.routes) > 1 {
		urls := make([]string, len(b.routes))
		for i, port := range b.routes {
			urls[i] = fmt.Sprintf("nats://127.0.0.1:%d", port)
		}
		fmt.Fprintf(&t, "cluster { name: rb, listen: \"127.0.0.1:%d\", routes: [%s], tls { %s } }\n",
			b.clusterPort, strings.Join(urls, ", "), tls)
	}
	return t.String()
}

// addBrokers draws the ports and writes the configuration of every nats-server.
func (c *Cluster) addBrokers(n int, plain bool) error {
	key, err := os.ReadFile(filepath.Join(c.keys, "at-rest.key"))
	if err != nil {
		return fmt.Errorf("read the key of the store: %w", err)
	}
	servers := make([]brokerConfig, n)
	routes := make([]int, n)
	for i := range servers {
		name := fmt.Sprintf("nats-%d", i+1)
		b := brokerConfig{name: name, store: filepath.Join(brokertest.StoreDir(c.t), name), tlsDir: c.tlsDir(), plain: plain}
		for _, port := range []*int{&b.port, &b.clusterPort, &b.monitorPort} {
			if *port, err = c.ports.draw(c.t.Context()); err != nil {
				return err
			}
		}
		servers[i], routes[i] = b, b.clusterPort
		c.busURLs = append(c.busURLs, fmt.Sprintf("nats://127.0.0.1:%d", b.port))
		c.stores = append(c.stores, b.store)
	}
	for _, b := range servers {
		b.routes = routes
		file := filepath.Join(c.dir, b.name+".conf")
		if err := os.WriteFile(file, []byte(b.text()), 0o600); err != nil {
			return fmt.Errorf("write configuration: %w", err)
		}
		p, err := c.add(RoleBroker, b.name, programNATS, []string{"-c", file},
			fmt.Sprintf("http://127.0.0.1:%d/healthz", b.monitorPort))
		if err != nil {
			return err
		}
		// In quotes, or nats-server would take a key that begins with digits for a number.
		p.Setenv(fmt.Sprintf("%s=%q", atRestVariable, strings.TrimSpace(string(key))))
	}
	return nil
}
