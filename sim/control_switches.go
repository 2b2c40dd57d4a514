// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"encoding/json"
	"net/http"

	"github.com/rackbus/rackbus/sim/nvswitch"
)

// switchState is a switch as the control listener shows it. Passwords and configurations are not shown.
type switchState struct {
	ID         string          `json:"id"`
	Type       string          `json:"type"`
	IP         string          `json:"ip"`
	Ports      nvswitch.Ports  `json:"ports"`
	Up         bool            `json:"up"`
	PowerState string          `json:"power_state"`
	Reboots    int             `json:"reboots"`
	Images     nvswitch.Images `json:"images"`
	Cluster    string          `json:"cluster"`
	Controller nvswitch.App    `json:"controller"`
	Knobs      nvswitch.Knobs  `json:"knobs"`
}

func stateOfSwitch(s *nvswitch.Switch) switchState {
	return switchState{
		ID: s.ID(), Type: s.NodeType(), IP: s.IP(), Ports: s.Ports(), Up: s.Up(), PowerState: s.PowerState(),
		Reboots: s.Reboots(), Images: s.Images(), Cluster: s.Config("/cluster/state"), Controller: s.App("nmx-controller"),
		Knobs: s.Knobs(),
	}
}

func (c *controlServer) addSwitches(mux *http.ServeMux) {
	with := func(h func(http.ResponseWriter, *http.Request, *nvswitch.Switch)) http.HandlerFunc {
		return func(w http.ResponseWriter, req *http.Request) {
			s := c.rack.Switch(req.PathValue("id"))
			if s == nil {
				http.Error(w, "no such switch", http.StatusNotFound)
				return
			}
			h(w, req, s)
		}
	}
	mux.HandleFunc("GET /sim/switches", func(w http.ResponseWriter, _ *http.Request) {
		states := make([]switchState, 0, len(c.rack.switches))
		for _, s := range c.rack.switches {
			states = append(states, stateOfSwitch(s))
		}
		reply(w, states)
	})
	mux.HandleFunc("GET /sim/switches/{id}", with(func(w http.ResponseWriter, _ *http.Request, s *nvswitch.Switch) {
		reply(w, stateOfSwitch(s))
	}))
	mux.HandleFunc("PATCH /sim/switches/{id}/knobs", with(func(w http.ResponseWriter, req *http.Request, s *nvswitch.Switch) {
		knobs := s.Knobs()
		if err := json.NewDecoder(req.Body).Decode(&knobs); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.SetKnobs(knobs)
		reply(w, knobs)
	}))
	mux.HandleFunc("POST /sim/switches/{id}/restart", with(func(w http.ResponseWriter, _ *http.Request, s *nvswitch.Switch) {
		s.Reboot()
		w.WriteHeader(http.StatusNoContent)
	}))
}
