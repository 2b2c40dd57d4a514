// SPDX-License-Identifier: Apache-2.0

package ironic

import (
	"slices"
	"strings"

	"github.com/rackbus/rackbus/pkg/job"
)

// problem is a cause that the words of Ironic stand for.
type problem struct {
	Code string `json:"code"`
	// Current is true for what the node's last_error says, false for an earlier event,
	// after which something else was done with the node.
	Current bool `json:"current"`
	// At is when the event was written, empty for last_error.
	At   string `json:"at,omitempty"`
	Text string `json:"text"`
}

// cause is a row of the table of known problems. Texts are compared in lower case.
type cause struct {
	code job.FailureCode
	// about and wrong are words of which the text has at least one each.
	about, wrong []string
	// images has the names of the node's own ramdisk count as about.
	images bool
	// driverIsNot is a driver that does not have the problem.
	driverIsNot string
}

// causes is the table. Its words are those of Ironic's exceptions, as operators
// report them.
func causes() []cause {
	return []cause{
		{
			code:   job.FailureIronicImageNotFound,
			about:  []string{"deploy_kernel", "deploy_ramdisk", "rescue_kernel", "rescue_ramdisk", "ironic-python-agent", "ironic_python_agent", "/ipa."},
			images: true,
			wrong: []string{
				"not found", "could not be found", "http code 404", "does not exist", "no such file", "missing are", "were missing",
			},
		},
		{
			code:  job.FailureIronicDriverMismatch,
			about: []string{"power cycle", "power_cycle", "power-cycle", "vendor_passthru", "vendor passthru", "send_raw", "bmc_reset"},
			wrong: []string{
				"does not support", "not supported", "unsupported", "not implemented", "no handler for method",
			},
			driverIsNot: "ipmi",
		},
	}
}

// imageKeys are where a node has a ramdisk of its own.
func imageKeys() []string {
	return []string{"deploy_kernel", "deploy_ramdisk", "deploy_iso", "rescue_kernel", "rescue_ramdisk"}
}

func (c *cause) fits(n *node, text string) bool {
	if c.driverIsNot != "" && strings.EqualFold(n.Driver, c.driverIsNot) {
		return false
	}
	text = strings.ToLower(text)
	has := func(word string) bool { return word != "" && strings.Contains(text, strings.ToLower(word)) }
	about := slices.ContainsFunc(c.about, has)
	if c.images && !about {
		about = slices.ContainsFunc(imageKeys(), func(key string) bool {
			name, _ := n.DriverInfo[key].(string)
			return has(name)
		})
	}
	return about && slices.ContainsFunc(c.wrong, has)
}

// event is one entry of a node's history.
type event struct {
	CreatedAt string `json:"created_at"`
	Event     string `json:"event"`
}

// problemsOf recognises what the node's last error and its history stand for, the
// current ones first.
func problemsOf(n *node, history []event) []problem {
	out := []problem{}
	table := causes()
	add := func(text, at string, current bool) {
		for i := range table {
			if table[i].fits(n, text) {
				out = append(out, problem{Code: string(table[i].code), Current: current, At: at, Text: text})
			}
		}
	}
	add(n.LastError, "", true)
	for _, e := range slices.Backward(history) {
		if e.Event != n.LastError {
			add(e.Event, e.CreatedAt, false)
		}
	}
	return out
}
