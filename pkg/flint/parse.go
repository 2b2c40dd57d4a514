// SPDX-License-Identifier: Apache-2.0

package flint

import (
	"bufio"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Kinds of devices, as inventory profiles count them.
const (
	KindCX7 = "cx7"
	KindCX8 = "cx8"
	KindBF3 = "bf3_nic"
)

// ErrUnreadable is wrapped by errors about output that is not as it should be.
var ErrUnreadable = errors.New("output of the tool not understood")

// Device is a network device as the host knows it.
type Device struct {
	// Kind is one of KindCX7, KindCX8 and KindBF3.
	Kind string
	// Path is its MST device, for example /dev/mst/mt4129_pciconf0.
	Path string
	Firmware
}

// Firmware is what flint tells of a device or of an image.
type Firmware struct {
	// Version is the one that is written, Running the one in force where flint
	// tells both: they differ while a reset is pending.
	Version string
	Running string
	// PSID names the board: only images with the same one may be written.
	PSID string
}

// kindOf maps the types that mst prints, without their revision.
func kindOf(deviceType string) (string, bool) {
	name, _, _ := strings.Cut(deviceType, "(")
	switch strings.ToLower(name) {
	case "connectx7":
		return KindCX7, true
	case "connectx8":
		return KindCX8, true
	case "bluefield3":
		return KindBF3, true
	default:
		return "", false
	}
}

// devicePath is the form of the paths that go into command lines.
var devicePath = regexp.MustCompile(`^/dev/mst/[A-Za-z0-9][A-Za-z0-9._:-]*$`)

// function is the end of the path of a further function of a device that has its
// own row already.
var function = regexp.MustCompile(`\.\d$`)

// ParseDevices reads the table that "mst status -v" prints. Rows of other types,
// further functions of a device and what follows "Inband devices:" are left out.
func ParseDevices(text string) ([]Device, error) {
	var devices []Device
	seen := map[string]bool{}
	header := false
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if strings.HasPrefix(line, "Inband devices:") {
			break
		}
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		if fields[0] == "DEVICE_TYPE" && fields[1] == "MST" {
			header = true
			continue
		}
		kind, ok := kindOf(fields[0])
		path := fields[1]
		if !header || !ok || function.MatchString(path) || seen[path] {
			continue
		}
		if !devicePath.MatchString(path) {
			return nil, fmt.Errorf("%w: %s has the MST device %q", ErrUnreadable, fields[0], path)
		}
		seen[path] = true
		devices = append(devices, Device{Kind: kind, Path: path})
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	if !header {
		return nil, fmt.Errorf("%w: mst lists no devices", ErrUnreadable)
	}
	return devices, nil
}

// ParseQuery reads what "flint query" prints of a device or of an image.
func ParseQuery(text string) (Firmware, error) {
	var f Firmware
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		key, value, ok := strings.Cut(lines.Text(), ":")
		words := strings.Fields(value)
		if !ok || len(words) == 0 {
			continue
		}
		switch strings.TrimSpace(key) {
		case "FW Version":
			f.Version = words[0]
		case "FW Version(Running)":
			f.Running = words[0]
		case "PSID":
			f.PSID = words[0]
		}
	}
	if err := lines.Err(); err != nil {
		return f, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	switch {
	case f.Version == "":
		return f, fmt.Errorf("%w: flint tells no FW Version", ErrUnreadable)
	case f.PSID == "":
		return f, fmt.Errorf("%w: flint tells no PSID", ErrUnreadable)
	default:
		return f, nil
	}
}
