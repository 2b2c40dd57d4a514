// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"strings"

	"github.com/rackbus/rackbus/pkg/config"
	"github.com/rackbus/rackbus/pkg/node"
)

// process is one program of Rackbus.
type process struct {
	// name of its directory and its certificate; its program is rackbus-<name>.
	name string
	kind config.Process
	// user of the bus.
	user string
	// opens is the family whose secrets it can open.
	opens node.Family
	// metrics is the port of /metrics, different for each so that one host can have
	// all of them.
	metrics int
}

// processes returns all programs, the central ones first.
func processes() []process {
	return []process{
		{name: "jobs", kind: config.ProcessJobs, user: "jobs", opens: node.FamilyRack, metrics: 8811},
		{name: "api", kind: config.ProcessAPI, user: "api", metrics: 8802},
		{name: "compute-agent", kind: config.ProcessComputeAgent, user: "agent-compute", opens: node.FamilyCompute, metrics: 8812},
		{name: "switch-agent", kind: config.ProcessSwitchAgent, user: "agent-switch", opens: node.FamilySwitch, metrics: 8813},
		{name: "powershelf-agent", kind: config.ProcessPowerShelfAgent, user: "agent-powershelf", opens: node.FamilyPowerShelf, metrics: 8814},
	}
}

func (p process) agent() bool { return strings.HasSuffix(p.name, "-agent") }

// Users of the bus that are no processes of Rackbus.
const (
	userLeaf        = "leaf"
	userSubscriber  = "subscriber"
	userOperator    = "operator"
	userExt         = "ext"
	userExtOperator = "ext-operator"
	userSys         = "sys"
)

// busUsers returns all users of the bus.
func busUsers() []string {
	users := []string{userLeaf, userSubscriber, userOperator, userExt, userExtOperator, userSys}
	for _, p := range processes() {
		users = append(users, p.user)
	}
	return users
}

// variable is what nats-server knows the public key of a user by.
func variable(user string) string {
	return "NKEY_" + strings.ToUpper(strings.ReplaceAll(user, "-", "_"))
}

// people are the roles of callers of the API, each with a certificate to begin
// with: spiffe://rackbus/<role>.
func people() []string { return []string{"viewer", "operator", "admin"} }
