// SPDX-License-Identifier: Apache-2.0

package nvswitch

import (
	"fmt"
	"strings"
	"time"
)

// Apps of the cluster.
const (
	controllerApp = "nmx-controller"
	telemetryApp  = "nmx-telemetry"
)

// Control plane states, as addition-info shows them.
const (
	planePrefix       = "CONTROL_PLANE_STATE_"
	planeStarting     = planePrefix + "STARTING"
	planeConfigured   = planePrefix + "CONFIGURED"
	planeUnconfigured = planePrefix + "UNCONFIGURED"
	planeStopped      = planePrefix + "STOPPED"
)

const (
	fabricFile  = "fm_config"
	topologyKey = "MNNVL_TOPOLOGY"
)

// app is one app of the cluster with its manager, the interface for other machines.
type app struct {
	installed bool
	status    string
	reason    string
	plane     string
	// starts counts how often it was started; events of an earlier start mean nothing.
	starts int

	manager     string
	certificate string
	authority   string
	encryption  string
}

func newApps() map[string]*app {
	out := map[string]*app{}
	for _, name := range []string{controllerApp, telemetryApp} {
		out[name] = &app{installed: true, status: "stopped", plane: planeStopped, manager: stateDisabled, encryption: stateDisabled}
	}
	return out
}

// factoryStatic is the static configuration of a controller that nobody has configured.
func factoryStatic() map[string]map[string]string {
	return map[string]map[string]string{
		fabricFile:  {"LOG_LEVEL": "4", "FABRIC_MODE": "1"},
		"sm_config": {"log_flags": "0x03", "sweep_interval": "10"},
	}
}

func (s *Switch) clusterOn() bool { return s.running.text(clusterPath, "state") == stateEnabled }

// managerOpen reports whether an app's port is open.
func (s *Switch) managerOpen(name string) bool {
	a := s.apps[name]
	return s.clusterOn() && a.installed && a.manager == stateEnabled && a.status != "stopped"
}

// clusterChanged starts or stops the apps.
func (s *Switch) clusterChanged(now time.Time, on bool) {
	for name, a := range s.apps {
		if on {
			s.startApp(now, name)
		} else {
			a.stop("")
		}
	}
}

func (a *app) stop(reason string) {
	a.starts++
	a.status, a.reason, a.plane = "stopped", reason, planeStopped
}

// startApp starts an app. Its control plane is ready after Timing.AppStart.
func (s *Switch) startApp(now time.Time, name string) {
	a := s.apps[name]
	a.starts++
	started := a.starts
	a.status, a.reason, a.plane = "not ok", "starting", planeStarting
	if f := s.knobs.Controller; name == controllerApp && f != nil && f.Restarts > 0 {
		left := *f
		if left.Restarts--; left.Restarts == 0 {
			s.knobs.Controller = nil
		} else {
			s.knobs.Controller = &left
		}
	}
	if n := &s.knobs.NMXC; name == controllerApp && n.SetIgnoredRestarts > 0 {
		if n.SetIgnoredRestarts--; n.SetIgnoredRestarts == 0 {
			n.SetIgnored = false
		}
	}
	s.after(now, s.timing.AppStart, func(now time.Time) {
		if a.starts != started {
			return
		}
		a.status, a.reason, a.plane = "ok", "", planeUnconfigured
		if name == telemetryApp || s.configured() {
			a.plane = planeConfigured
		}
	})
}

func (s *Switch) configured() bool {
	topology := s.static[fabricFile][topologyKey]
	return topology != "" && topology != "unknown"
}

// topologyChanged configures the control plane after a while.
func (s *Switch) topologyChanged(now time.Time) {
	a := s.apps[controllerApp]
	started := a.starts
	s.after(now, s.timing.Configure, func(time.Time) {
		if a.starts != started || a.status != "ok" {
			return
		}
		a.plane = planeUnconfigured
		if s.configured() {
			a.plane = planeConfigured
		}
	})
}

func addCluster(at route) {
	at("GET", clusterPath, readCluster)
	at("GET", "/cluster/apps", func(s *Switch, _ *call) reply {
		out := object{}
		for name, a := range s.apps {
			if a.installed {
				out[name] = s.showApp(name)
			}
		}
		return ok(out)
	})
	at("GET", "/cluster/apps/{app}", withApp(func(s *Switch, c *call, _ *app) reply {
		return ok(s.showApp(c.r.PathValue("app")))
	}))
	at("POST", "/cluster/apps/{app}", post(map[string]func(*Switch, *call) reply{
		"@start": withApp(startAction), "@stop": withApp(stopAction),
	}))
	const manager = "/cluster/apps/{app}/manager"
	at("GET", manager, withApp(func(s *Switch, _ *call, a *app) reply { return ok(s.showManager(a)) }))
	at("POST", manager, updates(func(s *Switch, c *call, a *app) outcome {
		state := c.parameter("state")
		if state != stateEnabled && state != stateDisabled {
			return failedAction("the state is neither enabled nor disabled")
		}
		if !s.knobs.ManagerStuck {
			a.manager = state
		}
		return succeeded()
	}))
	at("GET", manager+"/certificate", withApp(func(_ *Switch, _ *call, a *app) reply { return ok(object{"certificate": a.certificate}) }))
	at("POST", manager+"/certificate", updates(func(s *Switch, c *call, a *app) outcome {
		id := c.parameter("cert-id")
		if s.entities[id] == nil {
			return failedAction(fmt.Sprintf("certificate %q is not installed", id))
		}
		a.certificate = id
		return succeeded()
	}))
	at("GET", manager+"/ca-certificate", withApp(func(_ *Switch, _ *call, a *app) reply { return ok(object{"ca-certificate": a.authority}) }))
	at("POST", manager+"/ca-certificate", updates(func(s *Switch, c *call, a *app) outcome {
		id := c.parameter("cacert-id")
		if s.cas[id] == nil {
			return failedAction(fmt.Sprintf("ca-certificate %q is not installed", id))
		}
		a.authority = id
		return succeeded()
	}))
	at("GET", manager+"/encryption", withApp(func(_ *Switch, _ *call, a *app) reply { return ok(object{"encryption": a.encryption}) }))
	at("POST", manager+"/encryption", updates(func(s *Switch, c *call, a *app) outcome {
		if issue := s.encrypt(c.r.PathValue("app"), c.parameter("mode")); issue != "" {
			return failedAction(issue)
		}
		return succeeded()
	}))
	at("GET", "/cluster/node/{kind}/server", readServers)
	at("POST", "/sdn/factory-default", post(map[string]func(*Switch, *call) reply{"@reset": resetSDN}))
}

// withApp finds the app that the path names.
func withApp(f func(*Switch, *call, *app) reply) func(*Switch, *call) reply {
	return func(s *Switch, c *call) reply {
		a := s.apps[c.r.PathValue("app")]
		if a == nil || !a.installed {
			return notFound(c.path)
		}
		return f(s, c, a)
	}
}

// updates makes the POST handler of an "@update".
func updates(update func(*Switch, *call, *app) outcome) func(*Switch, *call) reply {
	return post(map[string]func(*Switch, *call) reply{"@update": withApp(func(s *Switch, c *call, a *app) reply {
		name := c.r.PathValue("app")
		return s.start(c, s.timing.Action, func(now time.Time, _ *action) outcome {
			last := *a
			out := update(s, c, a)
			if *a != last {
				s.cutApp(now, name)
			}
			return out
		})
	})})
}

// cutApp ends the connections to an app's port, whose settings have changed.
func (s *Switch) cutApp(now time.Time, name string) {
	s.cuts[map[string]string{controllerApp: serviceNMXC, telemetryApp: serviceTelemetry}[name]] = true
	s.after(now, 0, func(time.Time) {})
}

// encrypt changes the encryption of a manager and returns why that cannot be.
func (s *Switch) encrypt(name, mode string) string {
	a := s.apps[name]
	switch {
	case a == nil:
		return "there is no such app"
	case mode != "mtls" && mode != stateDisabled:
		return "the mode is not known"
	case mode == "mtls" && (s.entities[a.certificate] == nil || s.cas[a.authority] == nil):
		return "mtls needs a certificate and a ca-certificate"
	}
	a.encryption = mode
	return ""
}

func readCluster(s *Switch, _ *call) reply {
	doc := s.running.object(clusterPath)
	delete(doc, "node")
	switch {
	case !s.clusterOn():
		doc["nmxc-conn"] = "n/a"
	case s.apps[controllerApp].status == "ok":
		doc["nmxc-conn"] = object{"state": "up"}
	default:
		doc["nmxc-conn"] = object{"state": "down"}
	}
	return ok(doc)
}

func readServers(s *Switch, c *call) reply {
	if kind := c.r.PathValue("kind"); kind != "primary" && kind != "secondary" {
		return notFound(c.path)
	}
	return readConfig(s, c)
}

func (s *Switch) showApp(name string) object {
	a := s.apps[name]
	doc := object{
		"status": a.status, "reason": a.reason, "addition-info": a.plane, "app-ver": "1.2.0", "app-id": "nmx-c-nvos",
		"manager": s.showManager(a),
	}
	if f := s.knobs.Controller; name == controllerApp && f != nil && a.status == "ok" {
		doc["addition-info"] = f.State
		if f.Status != "" {
			doc["status"] = f.Status
		}
	}
	return doc
}

func (s *Switch) showManager(a *app) object {
	state := a.manager
	if state == stateEnabled && s.knobs.ManagerState != "" {
		state = s.knobs.ManagerState
	}
	return object{
		"state": state, "encryption": a.encryption, "certificate": a.certificate, "ca-certificate": a.authority,
	}
}

func startAction(s *Switch, c *call, _ *app) reply {
	name := c.r.PathValue("app")
	return s.start(c, s.timing.Action, func(now time.Time, _ *action) outcome {
		if !s.clusterOn() {
			return failedAction("cluster is not enabled")
		}
		s.startApp(now, name)
		s.cutApp(now, name)
		return succeeded()
	})
}

func stopAction(s *Switch, c *call, a *app) reply {
	name := c.r.PathValue("app")
	return s.start(c, s.timing.Action, func(now time.Time, _ *action) outcome {
		a.stop("stopped by user")
		s.cutApp(now, name)
		return succeeded()
	})
}

// resetSDN takes the controller back to the factory's static configuration.
func resetSDN(s *Switch, c *call) reply {
	return s.start(c, s.timing.Action, func(now time.Time, _ *action) outcome {
		if !s.clusterOn() {
			return failedAction("cluster is not enabled")
		}
		s.static = factoryStatic()
		a := s.apps[controllerApp]
		a.starts++
		started := a.starts
		a.status, a.reason, a.plane = "not ok", "FACTORY RESET IN PROGRESS", planeStarting
		switch s.knobs.SDNReset {
		case SDNResetQuiet:
			a.status, a.reason, a.plane = "ok", "", planeUnconfigured
			return succeeded()
		case SDNResetAbsent:
			a.installed = false
			return succeeded()
		case SDNResetWithoutInfo:
			a.status, a.reason, a.plane = "", "", ""
			return succeeded()
		case SDNResetStuck:
			return succeeded()
		case SDNResetShown, SDNResetVanishes:
		}
		s.after(now, s.timing.SDNReset, func(time.Time) {
			if a.starts != started {
				return
			}
			a.installed = s.knobs.SDNReset != SDNResetVanishes
			a.status, a.reason, a.plane = "ok", "", planeUnconfigured
		})
		return succeeded()
	})
}

// App is what an app shows.
type App struct {
	Installed              bool
	Status, Reason, Plane  string
	Manager, Encryption    string
	Certificate, Authority string
	Starts                 int
}

// App returns the true state of an app, "nmx-controller" or "nmx-telemetry". Starts counts starts and stops.
func (s *Switch) App(name string) App {
	s.lock()
	defer s.mu.Unlock()
	a := s.apps[name]
	return App{
		Installed: a.installed, Status: a.status, Reason: a.reason, Plane: a.plane, Manager: a.manager,
		Encryption: a.encryption, Certificate: a.certificate, Authority: a.authority, Starts: a.starts,
	}
}

// SetApp changes an app beside all protocols: whether it is installed, and the state of its manager.
func (s *Switch) SetApp(name string, installed bool, manager string) {
	s.lock()
	s.apps[name].installed, s.apps[name].manager = installed, manager
	s.mu.Unlock()
	s.Reconcile()
}

// StaticConfig returns a value of the controller's static configuration, "" without one.
func (s *Switch) StaticConfig(file, key string) string {
	s.lock()
	defer s.mu.Unlock()
	return s.static[file][key]
}

// SetStaticConfig stores a value of the controller's static configuration.
func (s *Switch) SetStaticConfig(file, key, value string) {
	now := s.lock()
	defer s.mu.Unlock()
	s.store(now, file, key, value)
}

func (s *Switch) store(now time.Time, file, key, value string) {
	if s.static[file] == nil {
		s.static[file] = map[string]string{}
	}
	s.static[file][key] = value
	if file == fabricFile && key == topologyKey {
		s.topologyChanged(now)
	}
}

// content is a file of the static configuration as text.
func content(values map[string]string, keys []string) string {
	var out strings.Builder
	out.WriteString("# written by the controller\n\n")
	for i, key := range keys {
		separator := "="
		if i%2 == 1 {
			separator = " "
		}
		fmt.Fprintf(&out, "%s%s%s\n", key, separator, values[key])
	}
	return out.String()
}
