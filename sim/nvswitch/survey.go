// SPDX-License-Identifier: Apache-2.0

package nvswitch

const (
	updateURI    = redfishRoot + "/UpdateService"
	inventoryURI = updateURI + "/FirmwareInventory"
	logsURI      = systemURI + "/LogServices"
	eventLogURI  = logsURI + "/EventLog"
)

// addSurvey adds what only an examination reads: the firmware that the BMC knows of, and its event log.
func (s *Switch) addSurvey(closed func(path string, show func() object)) {
	closed(updateURI, func() object {
		return object{
			"@odata.id": updateURI, "@odata.type": "#UpdateService.v1_11_0.UpdateService", "Id": "UpdateService",
			"Name": "Update Service", "ServiceEnabled": true, "FirmwareInventory": object{"@odata.id": inventoryURI},
		}
	})
	members := []string{}
	for _, component := range []string{"BIOS", "BMC"} {
		entry := "FW_" + component + "_0"
		uri := inventoryURI + "/" + entry
		members = append(members, uri)
		closed(uri, func() object {
			return object{
				"@odata.id": uri, "@odata.type": "#SoftwareInventory.v1_4_0.SoftwareInventory", "Id": entry,
				"Name": "Software Inventory", "Version": s.Version(component), "Status": object{"State": "Enabled", "Health": "OK"},
			}
		})
	}
	closed(inventoryURI, func() object { return collectionOf("SoftwareInventory", members...) })
	closed(logsURI, func() object { return collectionOf("LogService", eventLogURI) })
	closed(eventLogURI, func() object {
		return object{
			"@odata.id": eventLogURI, "@odata.type": "#LogService.v1_3_0.LogService", "Id": "EventLog", "Name": "Event Log",
			"LogEntryType": "Event", "Entries": object{"@odata.id": eventLogURI + "/Entries"},
		}
	})
	closed(eventLogURI+"/Entries", func() object {
		return object{
			"@odata.type": "#LogEntryCollection.LogEntryCollection", "Name": "Log Entries", "Members@odata.count": 1,
			"Members": []any{object{
				"@odata.id": eventLogURI + "/Entries/1", "@odata.type": "#LogEntry.v1_15_0.LogEntry", "Id": "1", "Name": "Log Entry",
				"EntryType": "Event", "Created": "2026-01-01T00:00:00Z", "Severity": "OK",
				"MessageId": "ResourceEvent.1.3.0.ResourceCreated", "Message": "The management controller was started.",
			}},
		}
	})
}
