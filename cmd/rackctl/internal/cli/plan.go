// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/rackbus/rackbus/pkg/firmware"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// directRack stands in results for the rack, which a direct update does not know.
const directRack = "direct"

// plan is a direct update as the workflow takes it.
type plan struct {
	command *rackbusv1.JobCommand
	family  node.Family
	// dir is the folder that the command's file names start from.
	dir string
}

// plan checks the command line and the files.
func (f *updateFlags) plan(ctx context.Context, args []string) (*plan, error) {
	if f.bmc == "" || f.nodeType == "" {
		return nil, usagef("a direct update needs --bmc and --type")
	}
	if n := len(f.components); n > 0 && n != len(args) {
		return nil, usagef("%d files and %d components: give --component once for each file, in their order", len(args), n)
	}
	// The API writes the same names in capitals.
	t, known := node.ByID(strings.ToLower(f.nodeType))
	if !known || !slices.Contains(directTypes(), t.ID) {
		return nil, usagef("unknown node type %q; there are %s", f.nodeType, strings.Join(directTypes(), ", "))
	}
	bmc, err := endpoint("--bmc", f.bmc, node.PortHTTPS)
	if err != nil {
		return nil, err
	}
	bmc.HostName = f.tlsName
	var host *rackbusv1.DeviceEndpoint
	if f.host != "" {
		if !t.InBand {
			return nil, usagef("--host: network devices of %s are not flashed from its operating system", t.ID)
		}
		if f.login.file == "-" && f.hostLogin.file == "-" {
			return nil, usagef("--password-file and --host-password-file cannot both be standard input")
		}
		if host, err = endpoint("--host", f.host, portSSH); err != nil {
			return nil, err
		}
	}
	dir, names, err := locate(args)
	if err != nil {
		return nil, err
	}
	update := &rackbusv1.FirmwareUpdate{Activate: !f.noActivate, Force: f.force, Mixed: f.host != ""}
	for i, name := range names {
		target := &rackbusv1.FirmwareUpdateTarget{File: filepath.ToSlash(name)}
		if len(f.components) > 0 {
			target.Component = f.components[i]
		}
		if err := identify(ctx, filepath.Join(dir, name), target); err != nil {
			return nil, err
		}
		update.Targets = append(update.Targets, target)
	}
	return &plan{family: t.Family, dir: dir, command: &rackbusv1.JobCommand{
		Type: string(job.TypeFirmwareUpdate), Family: string(t.Family),
		Target: &rackbusv1.NodeTarget{
			RackId: directRack, NodeId: f.bmc, NodeType: t.ID,
			Bmc: bmc, Host: host,
		},
		Operation: &rackbusv1.JobCommand_FirmwareUpdate{FirmwareUpdate: update},
	}}, nil
}

// portSSH is where operating systems take logins.
const portSSH = 22

// endpoint reads the address that a flag gives: HOST, HOST:PORT or [IPv6]:PORT.
func endpoint(flag, text string, port uint16) (*rackbusv1.DeviceEndpoint, error) {
	host := strings.Trim(text, "[]")
	if strings.Count(text, ":") > 1 && !strings.HasPrefix(text, "[") {
		return &rackbusv1.DeviceEndpoint{Address: host, Port: uint32(port)}, nil // an IPv6 address by itself
	}
	h, p, err := net.SplitHostPort(text)
	if err != nil {
		if strings.Contains(host, ":") && net.ParseIP(host) == nil || strings.ContainsAny(host, "/@ ") {
			return nil, usagef("%s %q is not HOST or HOST:PORT", flag, text)
		}
		return &rackbusv1.DeviceEndpoint{Address: host, Port: uint32(port)}, nil
	}
	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil || n == 0 || h == "" {
		return nil, usagef("%s %q is not HOST or HOST:PORT", flag, text)
	}
	return &rackbusv1.DeviceEndpoint{Address: h, Port: uint32(n)}, nil
}

// locate finds the folder that holds all files, and their names in it. Symbolic
// links are followed: the workflow itself never leaves its folder.
func locate(args []string) (dir string, names []string, err error) {
	paths := make([]string, len(args))
	for i, arg := range args {
		if paths[i], err = filepath.Abs(arg); err == nil {
			paths[i], err = filepath.EvalSymlinks(paths[i])
		}
		if err != nil {
			return "", nil, usagef("firmware file: %w", err)
		}
	}
	dir = filepath.Dir(paths[0])
	for _, p := range paths[1:] {
		for !within(dir, p) {
			dir = filepath.Dir(dir)
		}
	}
	for _, p := range paths {
		name, err := filepath.Rel(dir, p)
		if err != nil {
			return "", nil, usagef("firmware file: %w", err)
		}
		names = append(names, name)
	}
	return dir, names, nil
}

func within(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// identify pins the file as it is now: another content is refused later on, also
// by a run that takes this one up.
func identify(ctx context.Context, path string, target *rackbusv1.FirmwareUpdateTarget) error {
	file, size, err := openFile(path)
	if err != nil {
		return usagef("firmware file: %w", err)
	}
	defer file.Close()
	if size == 0 {
		return usagef("firmware file %s is empty", path)
	}
	sum, err := firmware.Digest(ctx, file, firmware.Section{Size: size})
	if err != nil {
		return failed(fmt.Errorf("firmware file %s: %w", path, err))
	}
	target.SizeBytes, target.Sha256 = size, sum[:]
	return nil
}

// readRoots reads the CA certificates that a device's certificate has to come from.
func readRoots(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, usagef("--ca: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, usagef("--ca: %s holds no certificate in PEM form", path)
	}
	return roots, nil
}
