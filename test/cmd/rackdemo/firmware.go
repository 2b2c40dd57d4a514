// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"

	"github.com/rackbus/rackbus/sim/firmwarepackage"
)

// The package that the demo installs.
const (
	packageFile = "nvfw_GB200-P4972_2.0.0.fwpkg"
	newVersion  = "GB200Nvl-26.11-1"
	component   = "FW_BMC_0"
	// imageSize makes the upload visible.
	imageSize = 4 << 20
)

// writePackage makes a PLDM firmware package for the BMC of a tray.
func writePackage(dir string) error {
	data, err := firmwarepackage.Build(firmwarepackage.Spec{
		Version: "GB200-P4972_2.0.0",
		Components: []firmwarepackage.Component{
			{Name: component, Version: newVersion, Payload: bytes.Repeat([]byte("rackbus!"), imageSize/8)},
		},
	})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, packageFile), data, 0o600)
}
