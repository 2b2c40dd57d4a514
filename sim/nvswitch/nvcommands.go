// SPDX-License-Identifier: Apache-2.0

package nvswitch

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// nv is the NVUE command line. Its changes wait for "nv config apply" and come into effect with it at once.
func (s *Switch) nv(words []string) output {
	now := s.lock()
	defer s.mu.Unlock()
	line := strings.Join(words, " ")
	switch {
	case strings.HasPrefix(line, "unset "):
		return s.unset(words[1:])
	case strings.HasPrefix(line, "config apply"):
		return s.applyStaged(now)
	case line == "config save":
		s.save()
		return output{stdout: "saved [rev_id: applied]\n"}
	case line == "show system", line == "show cluster":
		return output{stdout: "{}\n"}
	case strings.HasPrefix(line, "action restore cluster apps ") && strings.HasSuffix(line, " manager encryption") && len(words) == 7:
		return s.restoreEncryption(now, words[4])
	case strings.HasPrefix(line, "action update cluster apps ") && strings.HasSuffix(line, " manager encryption mtls") && len(words) == 8:
		if issue := s.encrypt(words[4], "mtls"); issue != "" {
			return fails("Error: " + issue)
		}
		s.cutApp(now, words[4])
		return output{stdout: "Action succeeded\n"}
	case line == "action generate sdn state apps nmx-controller type nv-bridge-state-report":
		return s.generateReport()
	default:
		return output{stderr: "Error: the command is not known: nv " + line + "\n", status: 1}
	}
}

// unset stages the removal of a setting.
func (s *Switch) unset(words []string) output {
	target := "/" + strings.Join(words, "/")
	switch target {
	case apiMTLS + "/ca-certificate", apiMTLS, apiPath + "/certificate":
		s.staged = append(s.staged, edit{path: target, remove: true})
		return output{}
	case gnmiMTLS + "/certificate", gnmiMTLS + "/ca-certificate", gnmiMTLS:
		form := strings.TrimPrefix(target, gnmiMTLS+"/")
		if s.knobs.GNMIUnset == GNMIUnsetAbsent {
			return fails("Error: 'mtls' is not one of ['certificate', 'port', 'state']")
		}
		if s.knobs.GNMIUnset == GNMIUnsetCAOnly && form == "certificate" {
			return fails("Error: 'certificate' is not one of ['ca-certificate']")
		}
		// Either form turns the demand for client certificates off.
		s.staged = append(s.staged, edit{path: gnmiMTLS + "/ca-certificate", remove: true})
		return output{}
	default:
		return fails("Error: nothing is set at " + target)
	}
}

func (s *Switch) applyStaged(now time.Time) output {
	staged := s.staged
	s.staged = nil
	if len(staged) == 0 {
		return output{stdout: noDiff + "\n"}
	}
	if rule, faulty := s.takeRevision(pathsOf(staged)); faulty && !rule.Effect {
		return fails("Error: " + rule.Issue)
	}
	switch state, issue := s.commit(now, staged); {
	case state == "applied":
		return output{stdout: "applied\n"}
	case issue == noDiff:
		return output{stdout: noDiff + "\n"}
	default:
		return fails("Error: " + issue)
	}
}

func (s *Switch) restoreEncryption(now time.Time, name string) output {
	if !s.clusterOn() {
		return fails("Error: cluster is not enabled")
	}
	if issue := s.encrypt(name, stateDisabled); issue != "" {
		return fails("Error: " + issue)
	}
	s.cutApp(now, name)
	return output{stdout: "Action succeeded\n"}
}

// generateReport writes a report of the controller's connections to its peers, the servers of the primary interface.
func (s *Switch) generateReport() output {
	fault := s.knobs.SDNReport
	if fault == SDNReportStale {
		return output{stdout: "Action succeeded\n"}
	}
	peers := slices.Sorted(maps.Keys(serversOf(s.running, "primary")))
	connections := []any{}
	for i, peer := range peers {
		if fault == SDNReportNoPeer && i == 0 {
			continue
		}
		connection := object{
			"nvbsUuid": fmt.Sprintf("00000000-0000-4000-8000-%012d", i+1), "nvbsAddress": peer + ":50051",
			"connectionState": "NMX_NVB_CONNECTION_STATE_CONNECTED", "kaState": "NMX_NVB_KA_STATE_OK",
			"activeState": "NMX_NVB_ACTIVE_STATE_ACTIVE", "chassisSnMismatch": fault == SDNReportMismatch,
		}
		if fault == SDNReportDown {
			connection["connectionState"] = "NMX_NVB_CONNECTION_STATE_DISCONNECTED"
		}
		maps.Copy(connection, s.knobs.SDNPeerStates)
		connections = append(connections, connection)
	}
	raw, err := json.Marshal(object{"statusUpdates": []any{object{
		"nvbdUuid": "00000000-0000-4000-8000-000000000000", "connectionStatuses": connections,
	}}})
	if err != nil {
		return fails("Error: " + err.Error())
	}
	if fault == SDNReportMalformed {
		raw = raw[:len(raw)/2]
	}
	s.reports++
	name := fmt.Sprintf("nv-bridge-state-report-%06d.json", s.reports)
	if fault == SDNReportBadName {
		name = "." + name
	}
	if err := s.root.MkdirAll(inside(reportDir), 0o755); err != nil {
		return fails("Error: " + err.Error())
	}
	if err := s.root.WriteFile(inside(reportDir+"/"+name), raw, 0o644); err != nil {
		return fails("Error: " + err.Error())
	}
	return output{stdout: "Action succeeded\n"}
}

func pathsOf(edits []edit) []string {
	out := make([]string, len(edits))
	for i, e := range edits {
		out[i] = e.path
	}
	return out
}
