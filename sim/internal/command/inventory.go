// SPDX-License-Identifier: Apache-2.0

package command

import (
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/rackbus/rackbus/sim"
)

// writeInventory writes a rack as the CSV that rackctl reads. Only the owner may read it: rackctl takes passwords from
// no other file.
func writeInventory(path string, rows []sim.InventoryRow) (err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("write inventory: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.Chmod(0o600); err != nil { // it may have existed
		return fmt.Errorf("write inventory: %w", err)
	}
	w := csv.NewWriter(f)
	records := [][]string{{
		"rack", "node", "type", "bmc_address", "bmc_mac", "bmc_port", "bmc_user", "bmc_password",
		"host_address", "host_mac", "host_port", "host_user", "host_password",
	}}
	for _, r := range rows {
		record := append([]string{r.Rack, r.Node, r.Type}, endpointFields(&r.BMC)...)
		records = append(records, append(record, endpointFields(r.Host)...))
	}
	if err := w.WriteAll(records); err != nil {
		return fmt.Errorf("write inventory: %w", err)
	}
	return nil
}

func endpointFields(e *sim.Endpoint) []string {
	if e == nil {
		return make([]string, 5)
	}
	login := e.Credentials.UserPass
	return []string{e.Interface.IPAddress, e.Interface.MACAddress, strconv.Itoa(e.Port), login.Username, login.Password}
}
