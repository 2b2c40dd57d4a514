// SPDX-License-Identifier: Apache-2.0

package nvswitch

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/internal/exchange"
	"github.com/rackbus/rackbus/sim/reqlog"
)

const (
	redfishRoot = "/redfish/v1"
	systemURI   = redfishRoot + "/Systems/System_0"
	resetURI    = systemURI + "/Actions/ComputerSystem.Reset"
)

// resetTypes are what ComputerSystem.Reset takes.
func resetTypes() []string {
	return []string{"On", "ForceOn", "GracefulShutdown", "ForceOff", "PowerCycle", "GracefulRestart", "ForceRestart"}
}

// newBMC returns the handler of the BMC: as much of Redfish as the power of a switch, and its examination, need.
func (s *Switch) newBMC() http.Handler {
	s.bmcHTTP = &exchange.Server{
		Faults: s.opts.Faults, Log: s.opts.Log, Protocol: reqlog.Redfish,
		ErrorBody: func(_ int, messageID, message string) any {
			return bmc.ErrorBody(cmp.Or(messageID, "GeneralError"), cmp.Or(message, "The request failed."))
		},
	}
	mux := http.NewServeMux()
	open := func(path string, show func() object) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { sendRedfish(w, http.StatusOK, show()) })
	}
	closed := func(path string, show func() object) {
		mux.HandleFunc("GET "+path, s.bmcUser(func(w http.ResponseWriter, _ *http.Request) { sendRedfish(w, http.StatusOK, show()) }))
	}
	open(redfishRoot, serviceRoot)
	open(redfishRoot+"/{$}", serviceRoot)
	closed(redfishRoot+"/Systems", func() object { return collectionOf("ComputerSystem", systemURI) })
	closed(systemURI, s.system)
	closed(redfishRoot+"/Managers", func() object { return collectionOf("Manager", redfishRoot+"/Managers/BMC_0") })
	closed(redfishRoot+"/Managers/BMC_0", func() object {
		return object{
			"@odata.id": redfishRoot + "/Managers/BMC_0", "@odata.type": "#Manager.v1_14_0.Manager", "Id": "BMC_0", "Name": "BMC_0",
			"ManagerType": "BMC", "FirmwareVersion": s.Version("BMC"), "PowerState": powerOn,
		}
	})
	closed(redfishRoot+"/Chassis", func() object { return collectionOf("Chassis", redfishRoot+"/Chassis/MGX_NVSwitch_0") })
	closed(redfishRoot+"/Chassis/MGX_NVSwitch_0", func() object {
		return object{
			"@odata.id": redfishRoot + "/Chassis/MGX_NVSwitch_0", "@odata.type": "#Chassis.v1_21_0.Chassis", "Id": "MGX_NVSwitch_0",
			"Name": "MGX_NVSwitch_0", "ChassisType": "Module", "SerialNumber": s.opts.Serial, "PowerState": s.PowerState(),
		}
	})
	s.addSurvey(closed)
	mux.HandleFunc("POST "+resetURI, s.bmcUser(s.resetSystem))
	mux.HandleFunc("/", s.bmcUser(func(w http.ResponseWriter, r *http.Request) {
		sendRedfish(w, http.StatusNotFound, bmc.ErrorBody("ResourceMissingAtURI", "Nothing is at "+r.URL.Path+"."))
	}))
	device := &endpoint{sw: s, name: serviceBMC, mux: mux}
	return device.handler(s.bmcHTTP)
}

func serviceRoot() object {
	return object{
		"@odata.id": redfishRoot, "@odata.type": "#ServiceRoot.v1_10_0.ServiceRoot", "Id": "RootService", "Name": "Root Service",
		"RedfishVersion": "1.17.0", "Vendor": "NVIDIA", "Systems": object{"@odata.id": redfishRoot + "/Systems"},
		"Managers": object{"@odata.id": redfishRoot + "/Managers"}, "Chassis": object{"@odata.id": redfishRoot + "/Chassis"},
		"UpdateService": object{"@odata.id": updateURI},
	}
}

func collectionOf(kind string, members ...string) object {
	links := make([]any, len(members))
	for i, m := range members {
		links[i] = object{"@odata.id": m}
	}
	return object{
		"@odata.type": "#" + kind + "Collection." + kind + "Collection", "Name": kind + " Collection", "Members": links,
		"Members@odata.count": len(members),
	}
}

// system is the switch as its BMC sees it.
func (s *Switch) system() object {
	state, reported := s.PowerState(), s.Knobs().PowerReported
	return object{
		"@odata.id": systemURI, "@odata.type": "#ComputerSystem.v1_17_0.ComputerSystem", "Id": "System_0", "Name": "System_0",
		"SystemType": "Physical", "Manufacturer": "NVIDIA", "Model": productName(s.opts.Model), "SerialNumber": s.opts.Serial,
		"PowerState": cmp.Or(reported, state), "Status": object{"State": "Enabled", "Health": "OK"},
		"LogServices": object{"@odata.id": logsURI},
		"Actions": object{"#ComputerSystem.Reset": object{
			"target": resetURI, "ResetType@Redfish.AllowableValues": resetTypes(),
		}},
	}
}

// bmcUser lets only the BMC's user in.
func (s *Switch) bmcUser(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if user != s.opts.BMCUsername || password != s.opts.BMCPassword {
			sendRedfish(w, http.StatusUnauthorized, bmc.ErrorBody("ResourceAtUriUnauthorized", "The credentials were not accepted."))
			return
		}
		next(w, r)
	}
}

func (s *Switch) resetSystem(w http.ResponseWriter, r *http.Request) {
	var body struct{ ResetType string }
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&body); err != nil {
		sendRedfish(w, http.StatusBadRequest, bmc.ErrorBody("MalformedJSON", "The body is not a JSON object."))
		return
	}
	if !slices.Contains(resetTypes(), body.ResetType) {
		sendRedfish(w, http.StatusBadRequest, bmc.ErrorBody("ActionParameterNotSupported", "The value is not supported for ResetType."))
		return
	}
	now := s.lock()
	defer s.mu.Unlock()
	if !s.knobs.PowerIgnored {
		s.resetPower(now, body.ResetType)
	}
	w.WriteHeader(http.StatusNoContent)
}

// resetPower does what a reset of the host does to the operating system.
func (s *Switch) resetPower(now time.Time, kind string) {
	cycled := bootPlan{power: true}
	switch kind {
	case "On", "ForceOn":
		if s.power == powerOn {
			return
		}
		s.power = powerOn
		s.after(now, s.timing.Reboot, func(now time.Time) { s.boot(now, cycled) })
	case "ForceOff", "GracefulShutdown":
		if s.power == powerOff {
			return
		}
		s.power = powerOff
		s.goDown(now, bootPlan{}, false)
	default:
		s.power = powerOn
		if kind != "PowerCycle" {
			cycled.power = false
		}
		s.goDown(now, cycled, true)
	}
}

func sendRedfish(w http.ResponseWriter, code int, doc any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(doc) // the exchange keeps it; a client that left is seen there
}
