// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"cmp"
	"strconv"
	"strings"
	"time"
)

// Names of the logs.
const (
	// LogEvents is the log of events of the Redfish registries.
	LogEvents = "EventLog"
	// LogSEL is the log of IPMI events.
	LogSEL = "SEL"
)

// LogEntry is an entry of one of the logs.
type LogEntry struct {
	// Log is LogEvents or LogSEL; empty is LogEvents.
	Log string `json:"log,omitempty"`
	// MessageID is for example "OpenBMC.0.1.PowerSupplyFailed".
	MessageID string   `json:"message_id,omitempty"`
	Message   string   `json:"message,omitempty"`
	Args      []string `json:"message_args,omitempty"`
	// Severity is OK, Warning or Critical; empty is OK.
	Severity string `json:"severity,omitempty"`
	// Created is when it was written; zero is when the device was started.
	Created time.Time `json:"created,omitzero"`
}

// addLogs adds the logs of a system or manager. Their entries are those that a knob
// sets, behind one that tells of the start.
func (b *Blueprint) addLogs(owner string) {
	services := owner + "/LogServices"
	logs := []string{LogEvents, LogSEL}
	var members []string
	for _, name := range logs {
		uri := services + "/" + name
		members = append(members, uri)
		kind := "Event"
		if name == LogSEL {
			kind = LogSEL
		}
		b.static(uri, object{
			"@odata.type": "#LogService.v1_3_0.LogService", "Id": name, "Name": name, "ServiceEnabled": true,
			"LogEntryType": kind, "OverWritePolicy": "WrapsWhenFull", "MaxNumberOfRecords": 4096,
			"Status": healthy(), "Entries": link(uri + "/Entries"),
		})
		b.live(uri+"/Entries", func(d *Device, _ time.Time) object { return d.logEntries(uri, name) })
	}
	b.collection(services, "LogServiceCollection", "Log Services", members...)
}

// logEntry finds the path of an entry of a log.
func (b *Blueprint) logEntry(path string) *resource {
	head, id, ok := strings.Cut(path, "/Entries/")
	if !ok || b.tree[head+"/Entries"] == nil {
		return nil
	}
	name := head[strings.LastIndexByte(head, '/')+1:]
	return &resource{live: func(d *Device, _ time.Time) object {
		n, err := strconv.Atoi(id)
		entries := d.logOf(name)
		if err != nil || n < 1 || n > len(entries) {
			return object{statusMember: 404, "@odata.id": path}
		}
		return d.logDocument(head, n, &entries[n-1])
	}}
}

// logOf is one log; the device is locked.
func (d *Device) logOf(name string) []LogEntry {
	entries := []LogEntry{{
		MessageID: "ResourceEvent.1.3.0.ResourceCreated", Message: "The management controller was started.", Created: d.startedAt,
	}}
	for _, e := range d.knobs.LogEntries {
		if cmp.Or(e.Log, LogEvents) == name {
			entries = append(entries, e)
		}
	}
	return entries
}

func (d *Device) logEntries(uri, name string) object {
	entries := d.logOf(name)
	members := make([]any, len(entries))
	for i := range entries {
		doc := d.logDocument(uri, i+1, &entries[i])
		if d.knobs.LogLinksOnly {
			doc = link(doc["@odata.id"].(string))
		}
		members[i] = doc
	}
	return object{
		"@odata.type": "#LogEntryCollection.LogEntryCollection", "Name": "Log Entries",
		"Members": members, "Members@odata.count": len(members),
	}
}

func (d *Device) logDocument(service string, n int, e *LogEntry) object {
	created := e.Created
	if created.IsZero() {
		created = d.startedAt
	}
	id := strconv.Itoa(n)
	return object{
		"@odata.id": service + "/Entries/" + id, "@odata.type": "#LogEntry.v1_15_0.LogEntry", "Id": id, "Name": "Log Entry",
		"EntryType": "Event", "Created": created.UTC().Format(time.RFC3339), "Severity": cmp.Or(e.Severity, "OK"),
		"MessageId": e.MessageID, "Message": e.Message, "MessageArgs": e.Args, "Resolved": false,
	}
}

// addSensors adds the sensors of a chassis.
func (b *Blueprint) addSensors(chassis string) {
	var members []string
	for _, s := range []struct {
		id, kind, units string
		reading         float64
	}{
		{"Inlet_Temp_0", "Temperature", "Cel", 24.5},
		{"Outlet_Temp_0", "Temperature", "Cel", 38},
		{"Total_Power_0", "Power", "W", 5240},
		{"Leak_Detector_0", "Voltage", "V", 1.7},
	} {
		uri := chassis + "/Sensors/" + s.id
		members = append(members, uri)
		b.live(uri, func(d *Device, _ time.Time) object {
			health := cmp.Or(d.knobs.SensorHealth[s.id], "OK")
			return object{
				"@odata.type": "#Sensor.v1_7_0.Sensor", "Id": s.id, "Name": strings.ReplaceAll(s.id, "_", " "),
				"ReadingType": s.kind, "ReadingUnits": s.units, "Reading": s.reading,
				"Status": object{"State": "Enabled", "Health": health},
			}
		})
	}
	b.collection(chassis+"/Sensors", "SensorCollection", "Sensors", members...)
}
