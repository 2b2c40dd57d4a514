// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/rackbus/rackbus/proto/rackmanager"
)

// Redfish paths of a tray.
const (
	systemPath    = "/redfish/v1/Systems/System_0"
	inventoryPath = "/redfish/v1/UpdateService/FirmwareInventory"
	chassisPath   = "/redfish/v1/Chassis"
	tasksPath     = "/redfish/v1/TaskService/Tasks"
	updatePath    = "/redfish/v1/UpdateService"
	managerPath   = "/redfish/v1/Managers/BMC_0"
)

// Connection settings of the agents, which a fair comparison shares.
const (
	idleConnections = 2 * time.Second
	rememberedTLS   = 16384
)

// direct is the plain client: net/http and encoding/json, and nothing that makes
// an update safe.
type direct struct {
	reads, writes *http.Client
	devices       []device
	// poll is the pause between two looks at a task, or at readiness.
	poll time.Duration
}

type device struct {
	url, user, password string
}

func newDirect(nodes []*rackmanager.NodeInfo) *direct {
	reads := &http.Transport{
		DialContext: (&net.Dialer{}).DialContext,
		TLSClientConfig: &tls.Config{
			MinVersion: tls.VersionTLS12, InsecureSkipVerify: true,
			NextProtos: []string{"http/1.1"}, ClientSessionCache: tls.NewLRUClientSessionCache(rememberedTLS),
		},
		DisableCompression: true, IdleConnTimeout: idleConnections, MaxIdleConnsPerHost: 1,
	}
	writes := reads.Clone()
	writes.DisableKeepAlives = true
	d := &direct{reads: &http.Client{Transport: reads}, writes: &http.Client{Transport: writes}, poll: pollInterval}
	for _, n := range nodes {
		bmc, login := n.GetBmcEndpoint(), n.GetBmcEndpoint().GetCredentials().GetUserPass()
		d.devices = append(d.devices, device{
			url:  "https://" + net.JoinHostPort(bmc.GetInterface().GetIpAddress(), strconv.Itoa(int(bmc.GetPort()))),
			user: login.GetUsername(), password: login.GetPassword(),
		})
	}
	return d
}

func (d *direct) close() {
	d.reads.CloseIdleConnections()
	d.writes.CloseIdleConnections()
}

func (d *direct) get(ctx context.Context, node int, path string, into any) error {
	return d.send(ctx, node, path, false, into)
}

// getLast closes the connection, because the next request comes later than it
// would be kept.
func (d *direct) getLast(ctx context.Context, node int, path string, into any) error {
	return d.send(ctx, node, path, true, into)
}

func (d *direct) send(ctx context.Context, node int, path string, last bool, into any) error {
	dev := &d.devices[node]
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, dev.url+path, nil)
	if err != nil {
		return err
	}
	req.Close = last
	return do(d.reads, dev, req, into)
}

func do(c *http.Client, dev *device, req *http.Request, into any) error {
	req.SetBasicAuth(dev.user, dev.password)
	req.Header.Set("Accept", "application/json")
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: status %d", req.Method, req.URL.Path, resp.StatusCode)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%s %s: %w", req.Method, req.URL.Path, err)
	}
	return nil
}

type link struct {
	ID string `json:"@odata.id"`
}

type collection struct {
	Members []link
}

func (d *direct) power(ctx context.Context, node int) error {
	var system struct{ PowerState string }
	if err := d.get(ctx, node, systemPath, &system); err != nil {
		return err
	}
	if system.PowerState != "On" {
		return fmt.Errorf("power state %q", system.PowerState)
	}
	return nil
}

// software is a member of the firmware inventory.
type software struct {
	ID, Version    string
	SoftwareID     string `json:"SoftwareId"`
	Updateable     bool
	WriteProtected *bool
	Status         struct{ Health string }
	RelatedItem    []link
}

func (d *direct) inventory(ctx context.Context, node int) error {
	items, err := d.software(ctx, node)
	if err == nil && len(items) == 0 {
		return fmt.Errorf("no firmware")
	}
	return err
}

func (d *direct) software(ctx context.Context, node int) ([]software, error) {
	var list collection
	if err := d.get(ctx, node, inventoryPath, &list); err != nil {
		return nil, err
	}
	items := make([]software, len(list.Members))
	for i, member := range list.Members {
		if err := d.get(ctx, node, member.ID, &items[i]); err != nil {
			return nil, err
		}
	}
	return items, nil
}
