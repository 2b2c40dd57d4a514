// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"

	"github.com/rackbus/rackbus/sim/firmwarepackage"
	"github.com/rackbus/rackbus/sim/nvswitch"
)

// The package that the demo installs.
const (
	packageFile = "nvfw_GB200-P4972_2.0.0.fwpkg"
	newVersion  = "GB200Nvl-26.11-1"
	component   = "FW_BMC_0"
	// imageSize makes uploads visible.
	imageSize = 4 << 20
)

// The image that the demo installs on switches.
const (
	imageFile = "nvos-amd64-25.02.4440.bin"
	imageRow  = "NVOS"
)

// writeFirmware puts both into a directory.
func writeFirmware(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	data, err := trayPackage()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, packageFile), data, 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, imageFile), nvswitch.ImageContent("25.02.4440", imageSize), 0o600)
}

// trayPackage is a PLDM firmware package for the BMC of a tray.
func trayPackage() ([]byte, error) {
	return firmwarepackage.Build(firmwarepackage.Spec{
		Version: "GB200-P4972_2.0.0",
		Components: []firmwarepackage.Component{
			{Name: component, Version: newVersion, Payload: bytes.Repeat([]byte("rackbus!"), imageSize/8)},
		},
	})
}
