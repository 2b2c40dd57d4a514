// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"

	"github.com/rackbus/rackbus/pkg/ssh"
)

const (
	reportDir   = "/host/cluster_infra/app_state/nmx-controller/nv-bridge-state-report"
	cmdGenerate = "nv action generate sdn state apps nmx-controller type nv-bridge-state-report"
	cmdList     = "ls -t " + reportDir
	// cmdListAny lists a directory that the first report makes.
	cmdListAny = "if [ -d " + reportDir + " ]; then " + cmdList + "; fi"

	// maxReport bounds a report; a rack has a few dozen connections.
	maxReport = 8 << 20
)

// reportName is what may follow the directory in a command line.
var reportName = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]*$`)

// The states of a connection that is well.
const (
	connectionUp     = "NMX_NVB_CONNECTION_STATE_CONNECTED"
	keepAliveOK      = "NMX_NVB_KA_STATE_OK"
	connectionActive = "NMX_NVB_ACTIVE_STATE_ACTIVE"
)

// bridgeReport is a report on the connections between controller and bridges.
type bridgeReport struct {
	Updates []struct {
		Bridge      string             `json:"nvbdUuid"`
		Connections []bridgeConnection `json:"connectionStatuses"`
	} `json:"statusUpdates"`
}

type bridgeConnection struct {
	Server    string `json:"nvbsUuid"`
	Address   string `json:"nvbsAddress"`
	State     string `json:"connectionState"`
	KeepAlive string `json:"kaState"`
	Active    string `json:"activeState"`
	Mismatch  bool   `json:"chassisSnMismatch"`
}

// CheckBridges lets the controller report on its connections and judges the
// report: all have to be well, and every one of the peers has to be among them.
func (c *Cluster) CheckBridges(ctx context.Context, peers []string) error {
	shell, err := c.sw.Shell()
	if err != nil {
		return err
	}
	defer shell.Close()
	exec := func(line string) (string, error) {
		out, err := shell.Exec(ctx, ssh.Command{Line: line, MaxOutput: maxReport})
		if err == nil && out.Truncated {
			err = fmt.Errorf("the output of %q is larger than %d bytes", line, maxReport)
		}
		return string(out.Stdout), err
	}
	before, err := exec(cmdListAny)
	if err != nil {
		return err
	}
	if _, err := exec(cmdGenerate); err != nil {
		return err
	}
	after, err := exec(cmdList)
	if err != nil {
		return err
	}
	name := firstLine(after)
	switch {
	case !reportName.MatchString(name):
		return fmt.Errorf("the newest report has the name %q, which is none of a report", name)
	case name == firstLine(before):
		return errors.New("the controller wrote no new report")
	}
	text, err := exec("cat " + reportDir + "/" + name)
	if err != nil {
		return err
	}
	var report bridgeReport
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		return fmt.Errorf("report %s is not readable: %w", name, err)
	}
	return report.judge(peers)
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(line)
}

func (r *bridgeReport) judge(peers []string) error {
	var seen []string
	var faults []error
	for _, u := range r.Updates {
		for _, c := range u.Connections {
			host, _, err := net.SplitHostPort(c.Address)
			if err != nil {
				host = c.Address
			}
			seen = append(seen, host)
			if c.State != connectionUp || c.KeepAlive != keepAliveOK || c.Active != connectionActive || c.Mismatch {
				faults = append(faults, fmt.Errorf("connection to %s: %s, %s, %s, chassis mismatch: %t",
					c.Address, named(c.State), named(c.KeepAlive), named(c.Active), c.Mismatch))
			}
		}
	}
	seen = canonical(seen)
	for _, p := range canonical(peers) {
		if !slices.Contains(seen, p) {
			faults = append(faults, fmt.Errorf("no connection to %s", p))
		}
	}
	return errors.Join(faults...)
}

func named(state string) string {
	if state == "" {
		return "(no state)"
	}
	return state
}
