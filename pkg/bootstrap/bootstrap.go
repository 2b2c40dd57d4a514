// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/rackbus/rackbus/pkg/node"
)

// Run makes what is missing of an installation. It returns ErrBusy when another run is at work in the same directory,
// and ErrOptions when nothing can be made of the options.
func Run(o Options) (*Report, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	dir := filepath.Join(o.Dir, secretsDir)
	if err := o.checkHub(dir); err != nil {
		return nil, err
	}
	if err := makePrivate(dir); err != nil {
		return nil, err
	}
	held, err := lock(dir)
	if err != nil {
		return nil, err
	}
	report, err := o.run(dir)
	return report, errors.Join(err, held.Close())
}

// checkHub refuses a leaf site anywhere but beside its hub: an authority of its own would be good for nothing there.
func (o *Options) checkHub(dir string) error {
	if o.Profile != Leaf {
		return nil
	}
	_, err := os.Lstat(filepath.Join(dir, "tls", "ca.crt"))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s has no hub: make a leaf site in the directory in which its hub was made", ErrOptions, o.Dir)
	}
	if err != nil {
		return fmt.Errorf("look for the authority of the hub: %w", err)
	}
	return nil
}

func (o *Options) run(dir string) (*Report, error) {
	report := &Report{}
	s, err := openSecrets(dir, report)
	if err != nil {
		return nil, err
	}
	b := &builder{Options: *o, secrets: s, report: report}
	steps := []func() error{b.processes, b.servers}
	if o.Profile != Leaf {
		steps = append(steps, b.people, b.outsiders)
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return report, nil
}

type builder struct {
	Options
	secrets *secrets
	report  *Report
}

// bundle is the directory of one process.
type bundle struct {
	*builder
	// dir is where it is made, to where it will lie.
	dir, to string
}

// bundle begins a directory below install/, for a leaf site below one of its own.
func (b *builder) bundle(name string, c Copy) *bundle {
	out := &bundle{builder: b, dir: filepath.Join(b.Dir, installDir, b.Site, name), to: c.To}
	c.From = out.dir
	b.report.Copies = append(b.report.Copies, c)
	return out
}

func (b *bundle) path(parts ...string) string {
	return filepath.Join(append([]string{b.dir}, parts...)...)
}

// identity gives the bundle a certificate, under a local name, and the CA.
func (b *bundle) identity(certificate, local string, hosts ...string) error {
	if err := b.secrets.certificate(certificate, hosts...); err != nil {
		return err
	}
	return errors.Join(
		b.report.copyFile(b.secrets.tls("ca.crt"), b.path("tls", "ca.crt")),
		b.report.copyFile(b.secrets.tls(certificate+".crt"), b.path("tls", local+".crt")),
		b.report.copyFile(b.secrets.tls(certificate+".key"), b.path("tls", local+".key")),
	)
}

// seed gives the bundle the NKEY of a bus user.
func (b *bundle) seed(user, local string) error {
	if _, err := b.secrets.user(user); err != nil {
		return err
	}
	return b.report.copyFile(b.secrets.seed(user), b.path(local))
}

// ownName is the name of a certificate, which at a leaf site is one of the site.
func (b *builder) ownName(name string) string {
	if b.Profile == Leaf {
		return name + "-" + b.Site
	}
	return name
}

func (b *builder) processes() error {
	for _, p := range processes() {
		if b.Profile == Leaf && !p.agent() {
			continue
		}
		dir := b.bundle(p.name, Copy{Program: "rackbus-" + p.name, To: filepath.Join(b.InstallDir, p.name), Host: b.processHost(p)})
		if err := dir.process(p); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) processHost(p process) string {
	if p.name == "api" {
		return strings.Join(b.APIHosts, ", ")
	}
	return ""
}

func (b *bundle) process(p process) error {
	err := errors.Join(
		b.identity(b.ownName(p.name), "bus"),
		b.seed(p.user, "nkey.seed"),
		b.report.add(b.path("config.toml"), b.config(p), modePublic),
	)
	if err != nil || p.opens == "" {
		return errors.Join(err, b.api(p))
	}
	return b.family(p.opens, ".seed", ".pub")
}

// api gives the API its listener's certificate, and the keys it seals with.
func (b *bundle) api(p process) error {
	if p.name != "api" {
		return nil
	}
	if err := b.identity("server", "server", b.APIHosts...); err != nil {
		return err
	}
	for _, f := range node.KeyFamilies() {
		if err := b.family(f, ".pub"); err != nil {
			return err
		}
	}
	return b.report.copyFile(filepath.Join(b.secrets.keys(), linkKey), b.path("keys", linkKey))
}

// linkKey signs the links to evidence.
const linkKey = "link.key"

func (b *bundle) family(f node.Family, suffixes ...string) error {
	for _, suffix := range suffixes {
		name := filepath.Join("families", string(f)+suffix)
		if err := b.report.copyFile(filepath.Join(b.secrets.keys(), name), b.path("keys", name)); err != nil {
			return err
		}
	}
	return nil
}

// people get a certificate for the API, and the operators of the bus the keys for
// nats-server.
func (b *builder) people() error {
	host := b.APIHosts[0]
	for _, role := range people() {
		dir := b.bundle(filepath.Join("people", role), Copy{To: "~/.config/rackctl", Host: "of people who are " + role})
		err := errors.Join(
			dir.identity(role, "client"),
			b.report.add(dir.path("config.yaml"), rackctlConfig(host), modePublic),
		)
		if err != nil {
			return err
		}
	}
	dir := b.bundle(filepath.Join("people", "bus-operator"), Copy{To: "~/.config/rackbus", Host: "of people who run the nats-servers"})
	return errors.Join(
		dir.identity("bus-operator", "client"),
		dir.seed(userOperator, "operator.seed"), dir.seed(userSys, "sys.seed"), dir.seed(userExtOperator, "ext-operator.seed"),
	)
}

// outsiders are systems that read the public events.
func (b *builder) outsiders() error {
	for _, user := range []string{userSubscriber, userExt} {
		dir := b.bundle(user, Copy{To: "any directory", Host: "of a system that reads the public events"})
		if err := errors.Join(dir.identity(user, "client"), dir.seed(user, "nkey.seed")); err != nil {
			return err
		}
	}
	return nil
}

// configurations are what nats-server reads, by profile; the first is the one to
// start with.
var configurations = map[Profile][]string{
	Single:  {"single.conf", "server.conf", "accounts-single.conf"},
	Cluster: {"cluster.conf", "server.conf", "accounts.conf"},
	Leaf:    {"leaf.conf", "accounts-leaf.conf"},
}

func (b *builder) servers() error {
	for i := range b.NATSHosts {
		if err := b.server(i); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) server(i int) error {
	host, _, err := splitHost(b.NATSHosts[i], clientPort)
	if err != nil {
		return err
	}
	name := b.serverName(i)
	to := filepath.Join(b.InstallDir, "nats")
	local := "nats"
	if b.Profile == Cluster {
		local = name
	}
	dir := b.bundle(local, Copy{Program: "nats-server", To: to, Host: host})
	if err := dir.identity(name, "nats", host); err != nil {
		return err
	}
	for _, file := range configurations[b.Profile] {
		content, err := fs.ReadFile(b.Files, "nats/"+file)
		if err != nil {
			return fmt.Errorf("read configuration of nats-server: %w", err)
		}
		if err := b.report.add(dir.path(file), content, modePublic); err != nil {
			return err
		}
	}
	return dir.environment(i, name)
}

// serverName is that of a nats-server and of its certificate.
func (b *builder) serverName(i int) string {
	if b.Profile == Leaf {
		return "leaf-" + b.Site
	}
	return hubServer(i)
}

func hubServer(i int) string { return fmt.Sprintf("nats-%d", i) }

// environment writes the variables of a nats-server, or adds those it lacks.
func (b *bundle) environment(i int, name string) error {
	vars, err := b.variables(i, name)
	if err != nil {
		return err
	}
	path := b.path("nats.env")
	there, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return b.report.add(path, []byte(environmentHead+vars.text()), modeSecret)
	}
	if err != nil {
		return fmt.Errorf("read variables of nats-server: %w", err)
	}
	missing := vars.without(string(there))
	if len(missing) == 0 {
		return nil
	}
	if err := write(path, []byte(strings.TrimRight(string(there), "\n")+"\n"+missing.text()), modeSecret); err != nil {
		return err
	}
	b.report.Extended = append(b.report.Extended, path)
	return nil
}
