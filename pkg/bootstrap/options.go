// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Profile is the shape of an installation.
type Profile string

// The profiles.
const (
	// Single is one nats-server.
	Single Profile = "single"
	// Cluster is three nats-servers.
	Cluster Profile = "cluster"
	// Leaf is a further site with agents only, whose nats-server is connected to
	// those of a Single or a Cluster.
	Leaf Profile = "leaf"
)

// Profiles returns all profiles.
func Profiles() []Profile { return []Profile{Single, Cluster, Leaf} }

// Ports that nats-server listens on.
const (
	clientPort  = "4222"
	clusterPort = "6222"
	leafPort    = "7422"
	monitorPort = "8222"
)

// Directories of an installation, unless others are wanted.
const (
	DefaultInstallDir  = "/etc/rackbus"
	DefaultStateDir    = "/var/lib/rackbus"
	DefaultNATSDir     = "/var/lib/rackbus-nats"
	DefaultFirmwareDir = "/srv/firmware"
)

// ErrOptions is wrapped by every refusal of options.
var ErrOptions = errors.New("bootstrap: unusable options")

// Options describe an installation.
type Options struct {
	// Dir is the directory that everything is written to.
	Dir     string
	Profile Profile
	// APIHosts are the names and addresses by which clients reach the API. They are
	// not used for a leaf site.
	APIHosts []string
	// NATSHosts are the names or addresses of the nats-servers, with a port unless
	// it is 4222: one, or three for a cluster. For a leaf site it is its own server.
	NATSHosts []string
	// HubHosts are, for a leaf site, the nats-servers of the hub, one or three, with
	// a port unless it is 7422.
	HubHosts []string
	// Site names a leaf site: letters, digits and '-'.
	Site string
	// LeafListener opens the port for leaf sites on all addresses; without it the
	// servers listen on the loopback address only.
	LeafListener bool
	// InstallDir is where the files will lie, one directory for each process; empty
	// is DefaultInstallDir. StateDir, NATSDir and FirmwareDir are where processes
	// keep what they write, empty being the defaults.
	InstallDir, StateDir, NATSDir, FirmwareDir string
	// Files has the configurations of nats-server below nats/.
	Files fs.FS
}

// siteName keeps the name of a site usable in file names and SPIFFE ids.
var siteName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)

// hubNames are the directories below install/ that a Single or a Cluster has there:
// what is copied to one host must not hold the keys of another.
func hubNames() []string {
	names := []string{"nats", "people", userSubscriber, userExt}
	for i := range servers[Cluster] {
		names = append(names, hubServer(i))
	}
	for _, p := range processes() {
		names = append(names, p.name)
	}
	return names
}

// servers is how many nats-servers a profile has.
var servers = map[Profile]int{Single: 1, Cluster: 3, Leaf: 1}

func (o *Options) check() error {
	want, known := servers[o.Profile]
	switch {
	case !known:
		return fmt.Errorf("%w: unknown profile %q", ErrOptions, o.Profile)
	case o.Dir == "":
		return fmt.Errorf("%w: no directory to make everything in (--out)", ErrOptions)
	case len(o.NATSHosts) != want:
		return fmt.Errorf("%w: profile %s has %d nats-server(s), %d given", ErrOptions, o.Profile, want, len(o.NATSHosts))
	case o.Profile == Leaf && !siteName.MatchString(o.Site):
		return fmt.Errorf("%w: a leaf site needs a name of small letters, digits and '-', not %q", ErrOptions, o.Site)
	case o.Profile == Leaf && slices.Contains(hubNames(), o.Site):
		return fmt.Errorf("%w: a leaf site cannot be called %q: its directory would lie within that of the hub", ErrOptions, o.Site)
	case o.Profile == Leaf && len(o.HubHosts) != 1 && len(o.HubHosts) != 3:
		return fmt.Errorf("%w: a leaf site needs the 1 or 3 nats-servers of the hub, %d given", ErrOptions, len(o.HubHosts))
	case o.Profile != Leaf && len(o.APIHosts) == 0:
		return fmt.Errorf("%w: no host of the API (--api-host)", ErrOptions)
	case o.Files == nil:
		return fmt.Errorf("%w: no configurations of nats-server", ErrOptions)
	}
	if o.Profile != Leaf {
		o.Site = "" // it names a directory
	}
	for _, text := range append(append([]string{}, o.NATSHosts...), o.HubHosts...) {
		host, _, err := splitHost(text, clientPort)
		if err != nil {
			return err
		}
		if strings.Contains(host, ":") {
			return fmt.Errorf("%w: name the host %q: the variables of nats-server have no place for IPv6 addresses", ErrOptions, text)
		}
	}
	for _, host := range o.APIHosts {
		if !hostName(host) {
			return fmt.Errorf("%w: %q is no host name or address", ErrOptions, host)
		}
	}
	for _, dir := range []struct {
		dir      *string
		standard string
	}{
		{&o.InstallDir, DefaultInstallDir}, {&o.StateDir, DefaultStateDir},
		{&o.NATSDir, DefaultNATSDir}, {&o.FirmwareDir, DefaultFirmwareDir},
	} {
		*dir.dir = cmp.Or(*dir.dir, dir.standard)
		if !plainPath.MatchString(*dir.dir) || !filepath.IsAbs(*dir.dir) {
			return fmt.Errorf("%w: %q is no absolute path of letters, digits and ._-", ErrOptions, *dir.dir)
		}
	}
	return nil
}

// What goes into configuration files needs no quoting in any of them.
var (
	plainPath = regexp.MustCompile(`^[A-Za-z0-9._/-]+$`)
	plainHost = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$`)
)

func hostName(host string) bool { return net.ParseIP(host) != nil || plainHost.MatchString(host) }

// splitHost separates HOST[:PORT].
func splitHost(text, port string) (host, p string, err error) {
	host, p = text, port
	if net.ParseIP(text) == nil { // IPv6 without a port has colons too
		if h, given, err := net.SplitHostPort(text); err == nil {
			host, p = h, given
		}
	}
	if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 || !hostName(host) {
		return "", "", fmt.Errorf("%w: %q is no HOST[:PORT]", ErrOptions, text)
	}
	return host, p, nil
}
