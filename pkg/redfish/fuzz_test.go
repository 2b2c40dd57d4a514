// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/rackbus/rackbus/pkg/secret"
)

// FuzzTask reads a body as a task, as the answer of a monitor and as the answer
// to an upload. Whatever a device sends, it is judged without a panic and within
// bounds.
func FuzzTask(f *testing.F) {
	for _, body := range []string{
		`{"@odata.id":"/redfish/v1/TaskService/Tasks/7","Id":"7","TaskState":"Running","TaskStatus":"OK","PercentComplete":42}`,
		`{"TaskState":"Completed","TaskStatus":"Critical","PercentComplete":"100","Messages":[{"MessageId":"Update.1.0.ApplyFailed","Message":"x","MessageSeverity":"Critical"}]}`,
		`{"TaskState":"Cancelled","TaskStatus":"Warning","PercentComplete":100,"Messages":[{"MessageId":"TaskEvent.1.0.1.TaskAborted"}]}`,
		`{"TaskState":"Running","TaskStatus":"OK","PercentComplete":0,"EndTime":"x","Messages":[{"MessageId":"Base.1.8.InternalError","Severity":"Critical"}]}`,
		`{"TaskState":{},"PercentComplete":"N/A","Messages":{"MessageId":7}}`,
		`{"error":{"code":"c","message":"m","@Message.ExtendedInfo":[{"MessageArgs":["/redfish/v1/TaskService/Tasks/9",1,null]}]}}`,
		`{"TaskMonitor":{"@odata.id":"/redfish/v1/TaskService/TaskMonitors/a"}}`,
		`[]`, `null`, `"\ud800"`, `{"PercentComplete":1e999}`, ``,
	} {
		f.Add([]byte(body), 200)
		f.Add([]byte(body), 202)
	}
	tray, _ := LookupProfile(NodeTypes()[0])
	client, err := New(Endpoint{Address: "192.0.2.1", Username: "u", Password: secret.New("p")}, Options{Profile: tray})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(client.Close)
	f.Fuzz(func(t *testing.T, body []byte, code int) {
		a := &answer{status: code, header: http.Header{"Location": {string(body)}}, body: body, path: updatePath}
		d, err := a.document()
		if err != nil {
			d = nil
		}
		judge(t, monitorStatus(TaskRef{Monitor: "/m"}, a, d))
		judge(t, taskStatus(TaskByID("7"), d))
		judge(t, taskStatus(TaskByID("7"), d).recogniseHandoff())
		if ref, ok := client.taskOf(a, d, extendedInfo(d)); ok {
			for _, path := range []string{ref.URI, ref.Monitor} {
				if _, err := devicePath(path); path != "" && err != nil {
					t.Fatalf("task reference %q leads off the device", path)
				}
			}
		}
		(&Error{Status: code}).describe(body)
	})
}

func judge(t *testing.T, s TaskStatus) {
	t.Helper()
	if s.Percent < -1 || s.Percent > 100 {
		t.Fatalf("percent %d", s.Percent)
	}
	if s.Err() != nil && !s.Terminal() {
		t.Fatalf("%s has failed but goes on", s.Phase)
	}
	if len(s.Text) > 2*maxText {
		t.Fatalf("text of %d bytes", len(s.Text))
	}
	if _, err := json.Marshal(s); err != nil {
		t.Fatal(err)
	}
}

// FuzzInventory reads a body as the inventory collection, as a member of it and
// as a power unit, and matches what comes out with packages.
func FuzzInventory(f *testing.F) {
	for _, body := range []string{
		`{"Members":[{"@odata.id":"/redfish/v1/UpdateService/FirmwareInventory/FW_BMC_0"}],"Members@odata.nextLink":"/p2"}`,
		`{"Members":["/a","https://evil/b",{"@odata.id":"/redfish/v1/../x"}],"Oem":{"Ami":{"FirmwareInventory":[{"DataSourceUri":"/a","Version":"1"},{"Name":"b","Version":2},7]}}}`,
		`{"Id":"HGX_FW_ERoT_CPU_0","Version":"01.02","SoftwareId":"0x10","SKU":"0xA1","Updateable":"true","WriteProtected":1,"Status":{"Health":"OK"},"RelatedItem":[{"@odata.id":"/c"}]}`,
		`{"Id":{},"Name":["x"],"Version":null,"Status":"N/A","RelatedItem":"/x"}`,
		`{"Id":"powerdevice3","Version":"0xf1 / 0xf1","state":"Enabled","status":"OK","updateProgress":"12.5"}`,
		`{"Id":"FW_IO_Board_SMA_0","Version":"1"}`, `{"Id":"SMR_0"}`, `{"Id":"FW_CX_9","Version":"é"}`, `[]`, `{`, ``,
	} {
		f.Add([]byte(body))
	}
	packages := []PackageVersions{
		{Version: "P4975", Components: []PackageComponent{{Name: "HMC", Version: "1"}, {Name: "GPU", SKU: "0xA1", Version: "2"}, {Name: "SMR", Version: "3"}}},
		{Version: "P4972", Components: []PackageComponent{{Name: "BMC", Version: "1"}, {Name: "SMA", Type: "IO_Board", Version: "2"}, {Name: "CX9", Version: "3"}}},
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		d, err := parseDocument(body)
		if err != nil {
			return
		}
		list := &collection{resource: &resource{document: d, path: "/list"}, members: d.links("Members")}
		_ = embeddedEntries(list)
		items := []FirmwareItem{firmwareItem(d, "/member"), powerUnit(list.resource).item()}
		for name, entry := range embeddedVersions(list) {
			items = append(items, embeddedItem(entry, "/"+name))
		}
		for _, item := range items {
			if item.Name == "" && leaf(item.URI) != "" {
				t.Fatal("an entry without a name")
			}
		}
		for _, id := range NodeTypes() {
			p, _ := LookupProfile(id)
			m := p.MatchPackages(packages, items, nil)
			CompareVersions(m.Expected, items)
			if m.Complete() && len(m.Expected) == 0 {
				t.Fatal("nothing is not complete")
			}
		}
		unit := powerUnit(list.resource)
		unit.Phase(PowerUnitVersion(unit.ID))
	})
}
