// SPDX-License-Identifier: Apache-2.0

package ironic

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// node is what is looked at of a node.
type node struct {
	UUID                 string         `json:"uuid"`
	Name                 string         `json:"name"`
	Driver               string         `json:"driver"`
	ProvisionState       string         `json:"provision_state"`
	TargetProvisionState string         `json:"target_provision_state"`
	PowerState           string         `json:"power_state"`
	TargetPowerState     string         `json:"target_power_state"`
	LastError            string         `json:"last_error"`
	InstanceUUID         string         `json:"instance_uuid"`
	DriverInfo           map[string]any `json:"driver_info"`
}

// restingStates are the provision states in which Ironic does nothing with a node
// until it is told to (Bare Metal State Machine): those it calls stable, those of a
// failed action, and the holds, which wait for an operator. In all others it may be
// writing to the disks of the node, or restarting it.
func restingStates() []string {
	return []string{
		"enroll", "manageable", "available", "active", "rescue", "error",
		"inspect failed", "clean failed", "deploy failed", "adopt failed", "rescue failed", "unrescue failed", "service failed",
		"clean hold", "deploy hold", "service hold",
	}
}

func (n *node) resting() bool { return slices.Contains(restingStates(), n.ProvisionState) }

// decodeNode reads a node. One without a provision state is none.
func decodeNode(path string, raw json.RawMessage) (node, error) {
	var n node
	if err := json.Unmarshal(raw, &n); err != nil || n.UUID == "" || n.ProvisionState == "" {
		return node{}, &Error{Method: http.MethodGet, Path: "v1/" + path, Message: "the answer is no node"}
	}
	return n, nil
}

// addressKeys are where drivers keep the address of a node's controller.
func addressKeys() []string {
	return []string{"redfish_address", "ipmi_address", "drac_address", "ilo_address", "irmc_address"}
}

// check compares the controller's address in Ironic with ours: a node by that name
// that is another machine would be diagnosed wrongly. Names and hidden addresses
// cannot be compared.
func (n *node) check(t Target) error {
	ours, err := netip.ParseAddr(strings.Trim(t.BMCAddress, "[]"))
	if err != nil {
		return nil
	}
	for _, key := range addressKeys() {
		text, _ := n.DriverInfo[key].(string)
		if u, err := url.Parse(text); err == nil && u.Host != "" {
			text = u.Hostname()
		}
		theirs, err := netip.ParseAddr(strings.Trim(text, "[]"))
		if err == nil && theirs.Unmap() != ours.Unmap() {
			return fmt.Errorf("the node %s of Ironic is another one: its %s is %s, the BMC of %s is %s", n.UUID, key, theirs, t.NodeID, ours)
		}
	}
	return nil
}

// mask hides what driver_info, instance_info and the like keep beside passwords,
// which every bundle hides: keys, and the user data of config drives.
func mask(raw json.RawMessage) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var doc any
	if err := d.Decode(&doc); err != nil {
		return nil, err
	}
	hide(doc)
	return doc, nil
}

const hidden = "[redacted]"

func hide(v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, member := range v {
			name := strings.ToLower(key)
			text, isText := member.(string)
			switch {
			case name == "configdrive" && member != nil, name == "user_data" && member != nil,
				strings.HasSuffix(name, "_key") && isText && text != "":
				v[key] = hidden
			default:
				hide(member)
			}
		}
	case []any:
		for _, member := range v {
			hide(member)
		}
	}
}
