// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/rackbus/rackbus/sim/nvswitch"
)

// errPorts is what --switch-ports finds wrong.
var errPorts = errors.New("need NAME=PORT,... with the names nvue, ssh, nmxc, telemetry, gnmi, bmc; 0 is a free port")

// defaultPorts are those of real switches plus 10000, the BMC's next to NVUE's, so that they need no privileges.
func defaultPorts() nvswitch.Ports {
	return nvswitch.Ports{NVUE: 10443, SSH: 10022, NMXC: 19370, Telemetry: 19352, GNMI: 19339, BMC: 10444}
}

func portsByName(p *nvswitch.Ports) map[string]*int {
	return map[string]*int{
		"nvue": &p.NVUE, "ssh": &p.SSH, "nmxc": &p.NMXC, "telemetry": &p.Telemetry, "gnmi": &p.GNMI, "bmc": &p.BMC,
	}
}

func setPorts(p *nvswitch.Ports, text string) error {
	byName := portsByName(p)
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		port, err := strconv.ParseUint(value, 10, 16)
		if err != nil || byName[name] == nil {
			return errPorts
		}
		*byName[name] = int(port)
	}
	return nil
}

func portText(p nvswitch.Ports) string {
	return fmt.Sprintf("nvue=%d,ssh=%d,nmxc=%d,telemetry=%d,gnmi=%d,bmc=%d", p.NVUE, p.SSH, p.NMXC, p.Telemetry, p.GNMI, p.BMC)
}
