// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// maxInventory bounds an inventory file, in bytes.
const maxInventory = 64 << 20

// entry is one node of an inventory file, as it was written.
type entry struct {
	line   int
	values map[string]string
}

// The columns of an inventory, which are its keys in YAML too, those of an endpoint
// after its name: bmc.address is the column bmc_address.
const (
	colRack    = "rack"
	colNode    = "node"
	colType    = "type"
	colProfile = "profile"

	keyAddress      = "address"
	keyMAC          = "mac"
	keyPort         = "port"
	keyName         = "name"
	keyUser         = "user"
	keyPassword     = "password"
	keyPasswordEnv  = "password_env"
	keyPasswordFile = "password_file"
)

// endpoints are the two sides of a node.
var endpoints = []string{"bmc", "host"}

var endpointKeys = []string{keyAddress, keyMAC, keyPort, keyName, keyUser, keyPassword, keyPasswordEnv, keyPasswordFile}

// knownColumn says that an inventory may have a column.
func knownColumn(name string) bool {
	switch name {
	case colRack, colNode, colType, colProfile:
		return true
	}
	side, key, _ := strings.Cut(name, "_")
	for _, e := range endpoints {
		for _, k := range endpointKeys {
			if side == e && key == k {
				return true
			}
		}
	}
	return false
}

// columnHelp lists the columns for people.
const columnHelp = `A CSV file starts with a line of column names; in YAML and JSON a list "nodes" has
the same names, those of an endpoint below bmc or host, and "defaults" holds what
all nodes share:

  rack, node, type        which node it is, for example lab, tray-01,
                          compute_gb200_nvidia
  bmc_address, bmc_mac    its management controller; bmc_port (443) and bmc_name
                          (name in its certificate) may be left out
  bmc_user                and bmc_password_env (a variable), bmc_password_file (a
                          file, relative to the inventory) or bmc_password (only
                          in a file that nobody else can read)
  host_...                the same for the operating system, which switches need
  profile                 expected-inventory profile

A user or password that is missing is that of --user and --password-file,
` + envPassword + ` or a prompt, and for hosts of --host-user,
--host-password-file, ` + envHostPassword + ` or a prompt.`

// fault is something wrong in a file.
type fault struct {
	file string
	line int
	text string
}

func (f *fault) Error() string { return fmt.Sprintf("%s:%d: %s", f.file, f.line, f.text) }

// readEntries reads an inventory file: CSV by its name, else YAML or JSON; - is
// standard input. With an error it gives the entries that could be read.
func readEntries(env *Env, path string) (entries []entry, err error) {
	raw, err := readInput(env, path)
	if err != nil {
		return nil, usagef("inventory: %w", err)
	}
	first := bytes.TrimSpace(raw)
	isCSV := strings.EqualFold(filepath.Ext(path), ".csv")
	if path == "-" && len(first) > 0 {
		line, _, _ := bytes.Cut(first, []byte("\n"))
		isCSV = bytes.ContainsRune(line, ',') && first[0] != '{' && first[0] != '['
	}
	if isCSV {
		entries, err = parseCSV(path, raw)
	} else {
		entries, err = parseYAML(path, raw)
	}
	if err != nil {
		return entries, &exitError{ExitUsage, err}
	}
	if len(entries) == 0 {
		return nil, usagef("inventory %s has no nodes", path)
	}
	return entries, nil
}

func readInput(env *Env, path string) ([]byte, error) {
	r := env.Stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		r = f
	}
	raw, err := io.ReadAll(io.LimitReader(r, maxInventory+1))
	if err == nil && len(raw) > maxInventory {
		err = fmt.Errorf("%s is larger than %s", path, bytesWord(maxInventory))
	}
	return raw, err
}

// login is the name and password of one side, and where the password is.
type login struct {
	user, password, env, file string
}

// nodeBuilder turns entries into nodes and collects all that is wrong with them.
type nodeBuilder struct {
	env    *Env
	file   string
	faults []error
	// private says that nobody else can read the file.
	private bool
}

func (b *nodeBuilder) fault(line int, format string, args ...any) {
	b.faults = append(b.faults, &fault{b.file, line, fmt.Sprintf(format, args...)})
}

// build checks every entry. Passwords are read where the entries say; those that
// they leave open are missing still.
func (b *nodeBuilder) build(entries []entry) ([]*rackmanager.NodeInfo, error) {
	seen := make(map[node.Ref]int)
	var out []*rackmanager.NodeInfo
	for _, e := range entries {
		n := b.node(e)
		ref := node.Ref{RackID: n.GetRackId(), NodeID: n.GetNodeId()}
		if first, twice := seen[ref]; twice && ref.NodeID != "" {
			b.fault(e.line, "node %s was there already in line %d", place(ref.RackID, ref.NodeID), first)
		}
		seen[ref] = e.line
		out = append(out, n)
	}
	if len(b.faults) > 0 {
		return nil, &exitError{ExitUsage, errors.Join(b.faults...)}
	}
	return out, nil
}

func (b *nodeBuilder) node(e entry) *rackmanager.NodeInfo {
	n := &rackmanager.NodeInfo{RackId: e.values[colRack], NodeId: e.values[colNode]}
	for _, col := range []string{colRack, colNode, colType} {
		if e.values[col] == "" {
			b.fault(e.line, "%s is missing", col)
		}
	}
	if id := e.values[colType]; id != "" {
		t, known := node.ByID(strings.ToLower(id))
		if known {
			setType(n, t, e.values[colProfile])
		} else {
			b.fault(e.line, "unknown type %q; there are %s", id, strings.Join(typeIDs(), ", "))
		}
	}
	n.BmcEndpoint, n.HostEndpoint = b.endpoint(e, "bmc"), b.endpoint(e, "host")
	if n.BmcEndpoint == nil && n.HostEndpoint == nil {
		b.fault(e.line, "neither bmc_address nor host_address is given")
	}
	return n
}

// setType names the type by its number where it has one. A profile can only go with
// a descriptor.
func setType(n *rackmanager.NodeInfo, t node.Type, profile string) {
	if profile == "" && !t.DescriptorOnly() {
		number := rackmanager.NodeType(t.Number)
		n.Type = &number
		return
	}
	attributes := t.Descriptor()
	if profile != "" {
		attributes[node.AttrInventoryProfile] = profile
	}
	n.NodeDescriptor = &rackmanager.NodeDescriptor{Attributes: attributes}
}

func typeIDs() []string {
	var out []string
	for _, t := range node.Types() {
		out = append(out, t.ID)
	}
	return out
}

// endpoint is one side of a node, nil when the entry has nothing of it.
func (b *nodeBuilder) endpoint(e entry, side string) *rackmanager.Endpoint {
	get := func(key string) string { return e.values[side+"_"+key] }
	address := get(keyAddress)
	if address == "" {
		for _, key := range endpointKeys {
			if get(key) != "" && key != keyUser && key != keyPasswordEnv && key != keyPasswordFile && key != keyPassword {
				b.fault(e.line, "%s_%s is given without %s_address", side, key, side)
			}
		}
		return nil
	}
	if _, err := netip.ParseAddr(address); err != nil {
		b.fault(e.line, "%s_address %q is no IP address", side, address)
	}
	out := &rackmanager.Endpoint{Interface: &rackmanager.NetworkInterface{IpAddress: address}}
	if mac := get(keyMAC); mac != "" {
		if _, err := net.ParseMAC(mac); err != nil {
			b.fault(e.line, "%s_mac %q is no MAC address", side, mac)
		}
		out.Interface.MacAddress = mac
	}
	if port := get(keyPort); port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			b.fault(e.line, "%s_port %q is no port", side, port)
		}
		out.Port = uint32(n)
	}
	if name := get(keyName); name != "" {
		out.Interface.HostName = &name
	}
	out.Credentials = b.credentials(e.line, side, login{get(keyUser), get(keyPassword), get(keyPasswordEnv), get(keyPasswordFile)})
	return out
}

// credentials reads what the entry has of a login; nil when it has nothing.
func (b *nodeBuilder) credentials(line int, side string, l login) *rackmanager.Credentials {
	given := 0
	for _, s := range []string{l.password, l.env, l.file} {
		if s != "" {
			given++
		}
	}
	password := l.password
	switch {
	case given > 1:
		b.fault(line, "%s: give one of password, password_env and password_file", side)
	case l.password != "" && !b.private:
		b.fault(line, "%s_password: others can read %s; chmod 600 it, or use password_env or password_file", side, b.file)
	case l.env != "":
		if password = b.env.Getenv(l.env); password == "" {
			b.fault(line, "%s_password_env: the variable %s is not set", side, l.env)
		}
	case l.file != "":
		path := l.file
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(b.file), path)
		}
		raw, err := (&loginFlags{file: path}).password(b.env)
		if err != nil {
			b.fault(line, "%s_password_file: %v", side, err)
		}
		password = string(raw)
	}
	if l.user == "" && password == "" {
		return nil
	}
	return userPass(l.user, password)
}

func userPass(user, password string) *rackmanager.Credentials {
	return &rackmanager.Credentials{Auth: &rackmanager.Credentials_UserPass{
		UserPass: &rackmanager.UsernamePassword{Username: user, Password: password},
	}}
}

// privateFile says that only its owner can read a file.
func privateFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o077 == 0
}
