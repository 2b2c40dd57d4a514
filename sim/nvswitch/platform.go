// SPDX-License-Identifier: Apache-2.0

package nvswitch

import (
	"cmp"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/rackbus/rackbus/sim/firmwarepackage"
)

const firmwareDir = "/host/fw-images"

// parallelComponents are what one package updates on a VR NVL72 switch.
func parallelComponents() []string { return []string{"BMC", "BIOS", "SMA", "EROT", "CPLD1"} }

func productName(m Model) string {
	if m == VRNVL72 {
		return "SIM-SWITCH-VR"
	}
	return "SIM-SWITCH-" + strings.ToUpper(m.family())
}

func addPlatform(at route) {
	at("GET", "/platform", func(s *Switch, _ *call) reply {
		return ok(object{
			"product-name": productName(s.opts.Model), "part-number": "920-9K36F-00RV", "serial-number": s.opts.Serial,
		})
	})
	at("GET", "/platform/chassis-location", func(s *Switch, _ *call) reply {
		return ok(object{
			"chassis-sn": s.opts.ChassisSerial, "slot-number": s.opts.Slot + 1, "topology-id": 128, "tray-index": s.opts.Slot,
		})
	})
	at("GET", "/platform/firmware", func(s *Switch, _ *call) reply {
		out := object{}
		for component := range s.firmware {
			out[component] = s.showFirmware(component)
		}
		return ok(out)
	})
	at("POST", "/platform/firmware", post(map[string]func(*Switch, *call) reply{"@fetch": fetchFirmware}))
	at("GET", asicPath, readConfig)
	at("GET", "/platform/firmware/files", func(s *Switch, _ *call) reply {
		out := object{}
		for name, from := range s.fetched {
			out[name] = object{"path": from}
		}
		return ok(out)
	})
	at("POST", "/platform/firmware/files/{file}", post(map[string]func(*Switch, *call) reply{"@install": installFetched}))
	at("GET", "/platform/firmware/{component}", func(s *Switch, c *call) reply {
		component := c.r.PathValue("component")
		if _, found := s.firmware[component]; !found {
			return notFound(c.path)
		}
		return ok(s.showFirmware(component))
	})
	at("GET", "/platform/firmware/{component}/files", func(s *Switch, c *call) reply {
		out := object{}
		dir := firmwareFolder(c.r.PathValue("component"))
		for _, name := range s.list(dir) {
			out[name] = object{"path": path.Join(dir, name)}
		}
		return ok(out)
	})
	at("POST", "/platform/firmware/{component}/files/{file}", post(map[string]func(*Switch, *call) reply{"@install": installFirmware}))
}

func (s *Switch) showFirmware(component string) object {
	doc := object{"actual-firmware": s.firmware[component], "part-number": "N/A", "Status": object{"Health": "OK"}}
	if installed, waits := s.pending[component]; waits {
		doc["pending-firmware"] = installed
	}
	return doc
}

// firmwareFolder is where the files of a component are: those of all CPLDs together.
func firmwareFolder(component string) string {
	name := strings.ToLower(component)
	if strings.HasPrefix(name, "cpld") {
		name = "cpld"
	}
	return path.Join(firmwareDir, name)
}

// versionOf returns the version that a firmware file brings for a component.
func (s *Switch) versionOf(file, component string) (string, error) {
	head, _, err := s.digest(file)
	if err != nil {
		return "", err
	}
	known := firmwarepackage.Identify(head, path.Base(file))
	at := slices.IndexFunc(known.Images, func(i firmwarepackage.Image) bool {
		return strings.EqualFold(i.Name, component) || strings.EqualFold(i.Name, strings.TrimRight(component, "0123456789"))
	})
	if at >= 0 {
		return known.Images[at].Version, nil
	}
	return cmp.Or(known.Version, firmwarepackage.VersionFromName(path.Base(file)), "raw"), nil
}

// installFirmware installs a file of a component's folder; the version is in force after a power cycle.
func installFirmware(s *Switch, c *call) reply {
	component, file := c.r.PathValue("component"), c.r.PathValue("file")
	if _, found := s.firmware[component]; !found {
		return notFound(c.path)
	}
	force, _ := c.parameters["force"].(bool)
	return s.start(c, s.timing.Install, func(now time.Time, _ *action) outcome {
		version, err := s.versionOf(path.Join(firmwareFolder(component), file), component)
		if err != nil {
			return failedAction("the firmware file cannot be installed: " + err.Error())
		}
		s.pending[component] = version
		if force {
			s.reboot(now, bootPlan{power: true})
		}
		return succeeded()
	})
}

func fetchFirmware(s *Switch, c *call) reply {
	if s.opts.Model != VRNVL72 {
		return refusal(http.StatusBadRequest, "The resource does not have this action.")
	}
	source := c.parameter("remote-url")
	file := path.Base(source)
	return s.start(c, s.timing.Action, func(time.Time, *action) outcome {
		stored := path.Join(firmwareDir, file)
		if err := s.copyIn(source, stored); err != nil {
			return failedAction(err.Error())
		}
		s.fetched[file] = stored
		return succeeded()
	})
}

func installFetched(s *Switch, c *call) reply {
	file := c.r.PathValue("file")
	from, found := s.fetched[file]
	if !found {
		return notFound(c.path)
	}
	return s.start(c, s.timing.Install, func(time.Time, *action) outcome {
		for _, component := range parallelComponents() {
			version, err := s.versionOf(from, component)
			if err != nil {
				return failedAction("the firmware file cannot be installed: " + err.Error())
			}
			s.pending[component] = version
		}
		return succeeded()
	})
}
