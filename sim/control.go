// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/faults"
	"github.com/rackbus/rackbus/sim/internal/door"
)

// controlServer is the plain HTTP listener through which faults and devices are changed at run time:
//
//	GET    /sim/faults               the rules in force
//	POST   /sim/faults               add one rule or a list; answers the ids
//	DELETE /sim/faults               take all out
//	DELETE /sim/faults/{id}          take one out
//	GET    /sim/devices              state of all devices
//	GET    /sim/devices/{id}         state of one
//	PATCH  /sim/devices/{id}/knobs   change knobs
//	POST   /sim/devices/{id}/restart restart the BMC as a crash would
//	DELETE /sim/devices/{id}/tasks/{task} abort an update and forget its task, as an operator might
//	GET    /sim/switches             state of all switches, with their ports
//	GET    /sim/switches/{id}        state of one
//	PATCH  /sim/switches/{id}/knobs  change knobs
//	POST   /sim/switches/{id}/restart restart the switch as a crash would
type controlServer struct {
	rack   *Rack
	addr   string
	server *http.Server
	done   sync.WaitGroup
}

// deviceState is a device as the control listener shows it.
type deviceState struct {
	ID         string            `json:"id"`
	Type       string            `json:"type"`
	Addr       string            `json:"addr"`
	PowerState string            `json:"power_state"`
	Versions   map[string]string `json:"versions"`
	Pending    map[string]string `json:"pending"`
	Tasks      []bmc.Task        `json:"tasks"`
	Resets     int               `json:"resets"`
	Knobs      bmc.Knobs         `json:"knobs"`
}

func newControlServer(r *Rack) (*controlServer, error) {
	l, err := door.Listen("tcp", r.opts.Control)
	if err != nil {
		return nil, fmt.Errorf("listen for control: %w", err)
	}
	c := &controlServer{rack: r, addr: l.Addr().String()}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /sim/faults", func(w http.ResponseWriter, _ *http.Request) { reply(w, r.Faults()) })
	mux.HandleFunc("POST /sim/faults", c.addFaults)
	mux.HandleFunc("DELETE /sim/faults", func(w http.ResponseWriter, _ *http.Request) {
		r.ClearFaults()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("DELETE /sim/faults/{id}", func(w http.ResponseWriter, req *http.Request) {
		if !r.RemoveFault(req.PathValue("id")) {
			http.Error(w, "no such fault", http.StatusNotFound)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /sim/devices", func(w http.ResponseWriter, _ *http.Request) {
		states := make([]deviceState, 0, len(r.devices))
		for _, d := range r.devices {
			states = append(states, stateOf(d))
		}
		reply(w, states)
	})
	mux.HandleFunc("GET /sim/devices/{id}", c.withDevice(func(w http.ResponseWriter, _ *http.Request, d *Device) {
		reply(w, stateOf(d))
	}))
	mux.HandleFunc("PATCH /sim/devices/{id}/knobs", c.withDevice(patchKnobs))
	mux.HandleFunc("POST /sim/devices/{id}/restart", c.withDevice(func(w http.ResponseWriter, _ *http.Request, d *Device) {
		d.Restart()
		w.WriteHeader(http.StatusNoContent)
	}))
	mux.HandleFunc("DELETE /sim/devices/{id}/tasks/{task}", c.withDevice(func(w http.ResponseWriter, req *http.Request, d *Device) {
		d.AbortTask(req.PathValue("task"))
		w.WriteHeader(http.StatusNoContent)
	}))
	c.addSwitches(mux)
	c.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	c.done.Go(func() {
		if err := c.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			r.opts.Logger.Error("control listener ended", "err", err)
		}
	})
	return c, nil
}

func (c *controlServer) close() {
	_ = c.server.Close()
	c.done.Wait()
}

func stateOf(d *Device) deviceState {
	return deviceState{
		ID: d.id, Type: d.NodeType(), Addr: d.Addr(), PowerState: d.PowerState(), Versions: d.Versions(),
		Pending: d.Pending(), Tasks: d.Tasks(), Resets: d.Resets(), Knobs: d.Knobs(),
	}
}

func (c *controlServer) withDevice(h func(http.ResponseWriter, *http.Request, *Device)) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		d := c.rack.Device(req.PathValue("id"))
		if d == nil {
			http.Error(w, "no such device", http.StatusNotFound)
			return
		}
		h(w, req, d)
	}
}

func (c *controlServer) addFaults(w http.ResponseWriter, req *http.Request) {
	var raw json.RawMessage
	if err := json.NewDecoder(req.Body).Decode(&raw); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	text := string(raw)
	if !strings.HasPrefix(text, "[") {
		text = "[" + text + "]"
	}
	rules, err := faults.Load(strings.NewReader(text))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ids := make([]string, 0, len(rules))
	for _, rule := range rules {
		id, err := c.rack.AddFault(rule)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		ids = append(ids, id)
	}
	reply(w, map[string][]string{"ids": ids})
}

func patchKnobs(w http.ResponseWriter, req *http.Request, d *Device) {
	knobs := d.Knobs()
	if err := json.NewDecoder(req.Body).Decode(&knobs); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	d.SetKnobs(knobs)
	reply(w, knobs)
}

func reply(w http.ResponseWriter, doc any) {
	w.Header().Set("Content-Type", "application/json")
	// A write error means that the client is gone.
	_ = json.NewEncoder(w).Encode(doc)
}
