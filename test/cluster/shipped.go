// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/rackbus/rackbus/deploy"
	"github.com/rackbus/rackbus/pkg/bootstrap"
	"github.com/rackbus/rackbus/pkg/bus/broker/brokertest"
)

// Site is what rackctl bootstrap has made, for a cluster of Options.Shipped.
type Site struct {
	// Dir is where it lies: secrets/ and install/.
	Dir string
	// Leaf is the name of the site that the agents belong to; empty when they are at the hub.
	Leaf string
	// Hub is where leaf sites connect.
	Hub string
	// url is the nats-server of that site.
	url string
}

// Seed is the file with the NKEY of a user of the bus.
func (s *Site) Seed(user string) string {
	return filepath.Join(s.Dir, "secrets", "nkeys", user+".seed")
}

// Certificate is a file below secrets/tls.
func (s *Site) Certificate(name string) string {
	return filepath.Join(s.Dir, "secrets", "tls", name)
}

// dirs are where bootstrap has put the files of a program.
func (s *Site) install(role string) string {
	if s.Leaf != "" && strings.HasSuffix(role, "-agent") {
		return filepath.Join(s.Dir, "install", s.Leaf, role)
	}
	return filepath.Join(s.Dir, "install", role)
}

const leafSite = "row-b"

// bootstrap makes a site as rackctl does, whose files stay where they are made, and the brokers with the shipped
// configurations.
func (c *Cluster) bootstrap(opts Options) error {
	c.Site = &Site{Dir: filepath.Join(c.dir, "site")}
	install := filepath.Join(c.Site.Dir, "install")
	clients, err := c.draw(opts.Brokers)
	if err != nil {
		return err
	}
	o := bootstrap.Options{
		Dir: c.Site.Dir, Profile: bootstrap.Single, APIHosts: []string{"127.0.0.1"}, NATSHosts: clients, Files: deploy.Files,
		InstallDir: install, StateDir: filepath.Join(c.dir, "state"), NATSDir: c.dir, FirmwareDir: c.FirmwareDir,
	}
	if opts.Brokers > 1 {
		o.Profile = bootstrap.Cluster
	}
	if _, err := bootstrap.Run(o); err != nil {
		return err
	}
	leafs, err := c.draw(opts.Brokers)
	if err != nil {
		return err
	}
	c.Site.Hub = "nats://" + leafs[0]
	if err := c.shippedBrokers(clients, leafs); err != nil {
		return err
	}
	if !opts.Leaf {
		return nil
	}
	return c.shippedLeaf(o, leafs)
}

// draw returns addresses that nobody listens on.
func (c *Cluster) draw(n int) ([]string, error) {
	out := make([]string, n)
	for i := range out {
		port, err := c.ports.draw(c.t.Context())
		if err != nil {
			return nil, err
		}
		out[i] = "127.0.0.1:" + strconv.Itoa(port)
	}
	return out, nil
}

func (c *Cluster) shippedBrokers(clients, leafs []string) error {
	routes, err := c.draw(len(clients))
	if err != nil {
		return err
	}
	for i := range clients {
		dir := filepath.Join(c.Site.Dir, "install", "nats")
		if len(clients) > 1 {
			dir = filepath.Join(c.Site.Dir, "install", "nats-"+strconv.Itoa(i))
		}
		store := filepath.Join(brokertest.StoreDir(c.t), "nats-"+strconv.Itoa(i))
		c.stores = append(c.stores, store)
		vars := []string{"RB_NATS_STORE=" + store, "RB_NATS_LEAF_LISTEN=" + leafs[i], "RB_NATS_CLUSTER_LISTEN=" + routes[i]}
		for j, route := range routes {
			vars = append(vars, fmt.Sprintf("RB_NATS_ROUTE_%d=nats://%s", j, route))
		}
		if err := c.shippedBroker("nats-"+strconv.Itoa(i), dir, vars); err != nil {
			return err
		}
		c.busURLs = append(c.busURLs, "tls://"+clients[i])
	}
	return nil
}

// shippedBroker runs nats-server with the variables of its file, but for those given.
func (c *Cluster) shippedBroker(name, dir string, vars []string) error {
	monitor, err := c.draw(1)
	if err != nil {
		return err
	}
	file, err := os.ReadFile(filepath.Join(dir, "nats.env"))
	if err != nil {
		return fmt.Errorf("read variables of nats-server: %w", err)
	}
	given := slices.DeleteFunc(strings.Split(string(file), "\n"), func(line string) bool {
		return line == "" || strings.HasPrefix(line, "#")
	})
	// Directories on hosts are all named nats; here each server has its own.
	given = append(given,
		"RB_NATS_CERT="+filepath.Join(dir, "tls", "nats.crt"), "RB_NATS_KEY="+filepath.Join(dir, "tls", "nats.key"),
		"RB_NATS_CA="+filepath.Join(dir, "tls", "ca.crt"), "RB_NATS_MONITOR="+monitor[0])
	conf := filepath.Join(dir, "leaf.conf")
	for _, line := range given {
		if path, found := strings.CutPrefix(line, "RB_NATS_CONF="); found {
			conf = filepath.Join(dir, filepath.Base(path))
		}
		if listen, found := strings.CutPrefix(line, "RB_NATS_LISTEN=0.0.0.0:"); found {
			given = append(given, "RB_NATS_LISTEN=127.0.0.1:"+listen)
		}
	}
	p, err := c.add(RoleBroker, name, programNATS, []string{"-c", conf}, "http://"+monitor[0]+"/healthz")
	if err != nil {
		return err
	}
	p.Setenv(append(given, vars...)...)
	return nil
}

// shippedLeaf adds the nats-server of a leaf site, which its agents connect to.
func (c *Cluster) shippedLeaf(o bootstrap.Options, leafs []string) error {
	client, err := c.draw(1)
	if err != nil {
		return err
	}
	o.Profile, o.NATSHosts, o.HubHosts, o.Site = bootstrap.Leaf, client, leafs, leafSite
	o.InstallDir = filepath.Join(o.InstallDir, leafSite)
	if _, err := bootstrap.Run(o); err != nil {
		return err
	}
	c.Site.Leaf, c.Site.url = leafSite, "tls://"+client[0]
	return c.shippedBroker("leaf", filepath.Join(c.Site.Dir, "install", leafSite, "nats"), nil)
}

// shippedArgs are the flags of a program with the configuration that bootstrap has written and the settings of a test.
func (c *Cluster) shippedArgs(role string, ports []string) []string {
	args := []string{"--config", filepath.Join(c.Site.install(role), "config.toml")}
	return append(args, ports...)
}

// overrides are settings as flags; the file of the site has all others.
func (s settings) overrides() []string {
	var out []string
	for key, value := range s {
		if strings.HasPrefix(key, "bus.") || strings.HasPrefix(key, "tls.") || key == "keys.dir" || key == "workflows.firmware_dir" {
			continue
		}
		if text, err := strconv.Unquote(value); err == nil {
			value = text
		}
		out = append(out, "--set", key+"="+value)
	}
	return out
}

// As connects to the brokers as one of their users, with the certificate of the people who run them. Agents of
// a leaf site connect there. The caller closes the connection.
func (c *Cluster) As(user string, opts ...nats.Option) (*nats.Conn, error) {
	urls := c.busURLs
	if c.Site.Leaf != "" && strings.HasPrefix(user, "agent-") {
		urls = []string{c.Site.url}
	}
	seed, err := nats.NkeyOptionFromSeed(c.Site.Seed(user))
	if err != nil {
		return nil, err
	}
	return c.dialBus(urls, "bus-operator", append([]nats.Option{seed, nats.CustomInboxPrefix("_INBOX_" + user)}, opts...)...)
}
