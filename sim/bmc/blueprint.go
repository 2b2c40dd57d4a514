// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

const (
	rootURI      = "/redfish/v1"
	systemsURI   = rootURI + "/Systems"
	managersURI  = rootURI + "/Managers"
	chassisURI   = rootURI + "/Chassis"
	updateURI    = rootURI + "/UpdateService"
	inventoryURI = updateURI + "/FirmwareInventory"
	tasksURI     = rootURI + "/TaskService/Tasks"
	pushURI      = updateURI + "/update"
	multipartURI = updateURI + "/update-multipart"
	monitorsURI  = rootURI + "/TaskService/TaskMonitors"
	// simpleUpdateURI is not where clients that build action URIs themselves look.
	simpleUpdateURI = updateURI + "/Actions/SimpleUpdate"
)

// Blueprint is the resource tree of a model. It is built once, never changes, and is shared by all its devices.
type Blueprint struct {
	model      Model
	product    product
	components []component
	index      map[string]*component
	tree       map[string]*resource
}

// resource is one URI: what it shows, and what can be done with it.
type resource struct {
	// static is the document when it is the same for all devices, else live makes it; both nil is an action.
	static []byte
	live   func(*Device, time.Time) object
	etag   bool
	// post and patch run with the device locked and get the decoded JSON body.
	post  func(*Device, time.Time, object) answer
	patch func(*Device, time.Time, object) answer
	// bare says that the action has no parameters at the moment; what then is done with a body is a knob.
	bare func(*Device) bool
	// remove is DELETE, with the device locked.
	remove func(*Device, time.Time) answer
	// receive takes uploads and runs without the lock.
	receive func(*Device, *http.Request) answer
}

// NewBlueprint builds the tree of a model.
func NewBlueprint(m Model) *Blueprint {
	b := &Blueprint{model: m, product: m.product(), index: map[string]*component{}, tree: map[string]*resource{}}
	b.components = b.product.components()
	for i := range b.components {
		b.index[b.components[i].name] = &b.components[i]
	}
	b.addCommon()
	b.product.build(b)
	return b
}

func (b *Blueprint) at(uri string) *resource {
	r := b.tree[uri]
	if r == nil {
		r = &resource{}
		b.tree[uri] = r
	}
	return r
}

// static adds a document that is the same for all devices.
func (b *Blueprint) static(uri string, doc object) {
	doc["@odata.id"] = uri
	body, err := json.Marshal(doc)
	if err != nil {
		panic(fmt.Sprintf("document of %s: %v", uri, err)) // documents are literals of this package
	}
	b.at(uri).static = body
}

// live adds a document made from the device's state.
func (b *Blueprint) live(uri string, render func(*Device, time.Time) object) *resource {
	r := b.at(uri)
	r.live = func(d *Device, now time.Time) object {
		doc := render(d, now)
		doc["@odata.id"] = uri
		return doc
	}
	return r
}

func (b *Blueprint) action(uri string, post func(*Device, time.Time, object) answer) {
	b.at(uri).post = post
}

func (b *Blueprint) collection(uri, kind, name string, members ...string) {
	b.static(uri, collection(kind, name, members))
}

func collection(kind, name string, members []string) object {
	links := make([]any, len(members))
	for i, m := range members {
		links[i] = link(m)
	}
	return object{
		"@odata.type": "#" + kind + "." + kind, "Name": name,
		"Members": links, "Members@odata.count": len(members),
	}
}

func link(uri string) object { return object{"@odata.id": uri} }

func healthy() object { return object{"State": "Enabled", "Health": "OK", "HealthRollup": "OK"} }

// addCommon adds what trays and shelves have alike.
func (b *Blueprint) addCommon() {
	root := object{
		"@odata.type": "#ServiceRoot.v1_10_0.ServiceRoot", "Id": "RootService", "Name": "Root Service",
		"RedfishVersion": "1.17.0", "Vendor": b.product.manufacturer,
		"Chassis": link(chassisURI), "Managers": link(managersURI),
		"UpdateService": link(updateURI), "TaskService": link(rootURI + "/TaskService"),
		"Tasks":          link(rootURI + "/TaskService"),
		"AccountService": link(rootURI + "/AccountService"), "SessionService": link(rootURI + "/SessionService"),
		"Links": object{"Sessions": link(rootURI + "/SessionService/Sessions")},
	}
	if b.product.shelf == nil || b.product.shelf.system {
		root["Systems"] = link(systemsURI)
	}
	if b.product.shelf != nil && b.product.shelf.equipment {
		root["PowerEquipment"] = link(equipmentURI)
	}
	b.static(rootURI, root)
	b.at("/redfish").static = []byte(`{"v1":"/redfish/v1/"}`)
	b.static(rootURI+"/AccountService", object{
		"@odata.type": "#AccountService.v1_10_0.AccountService", "Id": "AccountService", "Name": "Account Service",
		"ServiceEnabled": true,
	})
	b.addSessions()
	b.static(rootURI+"/TaskService", object{
		"@odata.type": "#TaskService.v1_1_4.TaskService", "Id": "TaskService", "Name": "Task Service",
		"ServiceEnabled": true, "CompletedTaskOverWritePolicy": "Oldest", "LifeCycleEventOnTaskStateChange": true,
		"Status": healthy(), "Tasks": link(tasksURI),
	})
	b.live(tasksURI, func(d *Device, _ time.Time) object {
		var members []string
		for _, id := range d.taskIDs() {
			members = append(members, tasksURI+"/"+id)
		}
		return collection("TaskCollection", "Task Collection", members)
	})
	b.addUpdateService()
}

func (b *Blueprint) addUpdateService() {
	service := b.live(updateURI, func(d *Device, _ time.Time) object { return d.updateService() })
	service.etag = true
	service.patch = patchUpdateService
	b.at(pushURI).receive = (*Device).receivePush
	b.at(multipartURI).receive = (*Device).receiveMultipart
	b.at(simpleUpdateURI).receive = (*Device).receiveSimple
	if b.product.shelf != nil {
		service.receive = (*Device).receivePush
	}
	b.live(inventoryURI, func(d *Device, _ time.Time) object { return d.inventory() })
	for _, c := range b.components {
		b.live(inventoryURI+"/"+c.name, func(d *Device, _ time.Time) object { return d.inventoryEntry(&c) })
	}
}

// find returns the resource at a path without a trailing slash.
func (b *Blueprint) find(path string) *resource {
	if r := b.tree[path]; r != nil {
		return r
	}
	if id, ok := strings.CutPrefix(path, sessionsURI+"/"); ok {
		return sessionResource(id)
	}
	if entry := b.logEntry(path); entry != nil {
		return entry
	}
	id, monitor := strings.CutPrefix(path, monitorsURI+"/")
	if !monitor {
		var ok bool
		if id, ok = strings.CutPrefix(path, tasksURI+"/"); !ok {
			return nil
		}
		id, monitor = strings.CutSuffix(id, "/Monitor")
	}
	if strings.Contains(id, "/") {
		return nil
	}
	return taskResource(id, monitor)
}
