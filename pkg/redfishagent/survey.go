// SPDX-License-Identifier: Apache-2.0

package redfishagent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rackbus/rackbus/pkg/diagnostics"
	"github.com/rackbus/rackbus/pkg/redfish"
)

// Bounds of what is read of one device. A tray has some 60 inventory entries, 40
// chassis and 500 sensors.
const (
	maxResources  = 128
	maxInventory  = 512
	maxSensors    = 1024
	maxLogEntries = 1000
	// maxLogReads bounds entries that a log does not show in its collection.
	maxLogReads = 200
	// maxBytes bounds all documents together: rules need them whole in memory. A tray
	// shows some 5 MiB.
	maxBytes = 32 << 20
	// logLimit bounds one log: the journal of a controller may have a hundred pages
	// that take seconds each, and must not cost all the others.
	logLimit = 30 * time.Second
)

// Collectors examine a device over Redfish; they share what they have read of it.
func Collectors(c *redfish.Client) []diagnostics.Collector {
	return collectors(&survey{c: c, most: maxBytes, logLimit: logLimit})
}

func collectors(s *survey) []diagnostics.Collector {
	compute := s.c.Profile().Kind == redfish.KindCompute
	return []diagnostics.Collector{
		powerCollector{s},
		diagnostics.NewCollector("managers", true, s.roots("Managers", "managers.json")),
		diagnostics.NewCollector("systems", compute, s.roots("Systems", "systems.json")),
		diagnostics.NewCollector("chassis", false, s.roots("Chassis", "chassis.json")),
		diagnostics.NewCollector("power_supplies", false, s.supplies),
		diagnostics.NewCollector("firmware", true, s.firmware),
		diagnostics.NewCollector("tasks", false, s.tasks),
		diagnostics.NewCollector("sel", false, s.logs("logs/sel.json", isSEL)),
		diagnostics.NewCollector("event_logs", false, s.logs("logs/events.json", func(d redfish.Document) bool { return !isSEL(d) })),
		diagnostics.NewCollector("sensors", false, s.sensors),
	}
}

// survey reads one device.
type survey struct {
	c *redfish.Client
	// read are the members of root collections, by the collection's name, once they
	// have been read.
	read map[string]resourceFile
	// bytes are those of all documents so far, most is how many there may be.
	bytes, most int
	// logLimit is how long one log may take to read.
	logLimit time.Duration
}

// errTooMuch says that the rest of a device was not read.
var errTooMuch = errors.New("the device shows more than is kept of it")

// list reads a collection unless too much was read already.
func (s *survey) list(ctx context.Context, uri string, limit int) (redfish.Members, error) {
	if s.bytes > s.most {
		return redfish.Members{}, errTooMuch
	}
	list, err := s.c.Members(ctx, uri, limit)
	for _, body := range list.Documents {
		s.bytes += len(body)
	}
	return list, err
}

// resource is a document, or why it could not be read.
type resource struct {
	URI   string          `json:"uri"`
	Body  json.RawMessage `json:"body,omitempty"`
	Error string          `json:"error,omitempty"`
}

func (r *resource) document() redfish.Document { return redfish.Document{URI: r.URI, Body: r.Body} }

type resourceFile struct {
	Resources []resource `json:"resources"`
	// Total is how many the device has, when some were left out.
	Total int `json:"total"`
	// ReadAt is when they were read, by the clock of the agent.
	ReadAt time.Time `json:"read_at,omitzero"`
}

// errUnread says that nothing of a collection could be read.
var errUnread = errors.New("none of the members could be read")

// members reads a collection. Members that cannot be read are told as such; the
// whole fails only when nothing can, or when it makes no sense to go on.
func (s *survey) members(ctx context.Context, uri string, limit int) (resourceFile, error) {
	list, err := s.list(ctx, uri, limit)
	if err != nil {
		return resourceFile{}, err
	}
	file := resourceFile{Resources: make([]resource, 0, len(list.URIs)), Total: list.Total, ReadAt: time.Now().UTC()}
	var last error
	failed := 0
	for _, member := range list.URIs {
		if body, ok := list.Documents[member]; ok {
			file.Resources = append(file.Resources, resource{URI: member, Body: body})
			continue
		}
		r, err := s.one(ctx, member)
		if err != nil {
			return file, err
		}
		if r.Error != "" {
			failed++
			last = errors.New(r.Error)
		}
		file.Resources = append(file.Resources, r)
	}
	if failed > 0 && failed == len(list.URIs) {
		return file, fmt.Errorf("%w: %w", errUnread, last)
	}
	return file, nil
}

// one reads a document. An error means that further requests would fail as well.
func (s *survey) one(ctx context.Context, uri string) (resource, error) {
	if s.bytes > s.most {
		return resource{}, errTooMuch
	}
	d, err := s.c.Document(ctx, uri)
	s.bytes += len(d.Body)
	switch {
	case err == nil:
		return resource{URI: uri, Body: d.Body}, nil
	case ctx.Err() != nil, passes(err), pointless(err):
		return resource{}, err
	default:
		return resource{URI: uri, Error: err.Error()}, nil
	}
}

// pointless reports an error that every other request will meet as well.
func pointless(err error) bool {
	var e *redfish.Error
	if !errors.As(err, &e) {
		return false
	}
	return e.CredentialFault() || slices.Contains([]redfish.ErrorCode{
		redfish.CodeConnectionRefused, redfish.CodeDNS, redfish.CodeTLS, redfish.CodeCanceled,
	}, e.Code)
}

// root reads the members of a collection of the service root, once for the whole
// survey.
func (s *survey) root(ctx context.Context, name string) (resourceFile, error) {
	if found, ok := s.read[name]; ok {
		return found, nil
	}
	uri, err := s.c.RootLink(ctx, name)
	if err != nil {
		return resourceFile{}, err
	}
	var file resourceFile
	if uri != "" {
		if file, err = s.members(ctx, uri, maxResources); err != nil && !redfish.Absent(err) {
			return file, err
		}
	}
	if s.read == nil {
		s.read = map[string]resourceFile{}
	}
	s.read[name] = file
	return file, nil
}

// roots collects a collection of the service root.
func (s *survey) roots(name, file string) func(context.Context, diagnostics.Sink) error {
	return func(ctx context.Context, into diagnostics.Sink) error {
		found, err := s.root(ctx, name)
		if len(found.Resources) == 0 && err == nil {
			return diagnostics.Skip("the device has no " + name)
		}
		return errors.Join(err, keep(into, file, found))
	}
}

// keep writes what there is, also when the rest failed.
func keep(into diagnostics.Sink, name string, file resourceFile) error {
	if len(file.Resources) == 0 {
		return nil
	}
	return into.JSON(name, file)
}

func (s *survey) firmware(ctx context.Context, into diagnostics.Sink) error {
	service, err := s.c.RootLink(ctx, "UpdateService")
	if err != nil {
		return err
	}
	if service == "" {
		return errors.New("the device has no update service")
	}
	d, err := s.c.Document(ctx, service)
	if err != nil {
		return err
	}
	inventory := d.Link("FirmwareInventory")
	if inventory == "" {
		inventory = strings.TrimSuffix(service, "/") + "/FirmwareInventory"
	}
	file, err := s.members(ctx, inventory, maxInventory)
	return errors.Join(err, keep(into, "firmware.json", file))
}

func (s *survey) tasks(ctx context.Context, into diagnostics.Sink) error {
	service, err := s.c.RootLink(ctx, "Tasks")
	if err != nil {
		return err
	}
	if service == "" {
		return diagnostics.Skip("the device has no task service")
	}
	d, err := s.c.Document(ctx, service)
	if err != nil {
		return err
	}
	list := d.Link("Tasks")
	if list == "" {
		return diagnostics.Skip("the task service lists no tasks")
	}
	file, err := s.members(ctx, list, maxResources)
	return errors.Join(err, into.JSON("tasks.json", file))
}

// below reads collections that the members of a root collection lead to.
func (s *survey) below(ctx context.Context, root string, limit int, link func(redfish.Document) []string) (resourceFile, error) {
	owners, err := s.root(ctx, root)
	if err != nil {
		return resourceFile{}, err
	}
	var all resourceFile
	var failed []error
	for i := range owners.Resources {
		owner := owners.Resources[i].document()
		uri, err := s.follow(ctx, owner, link(owner))
		if err != nil {
			return all, err
		}
		if uri == "" || len(all.Resources) >= limit {
			continue
		}
		file, err := s.members(ctx, uri, limit-len(all.Resources))
		all.Resources = append(all.Resources, file.Resources...)
		all.Total += file.Total
		switch {
		case err != nil && (ctx.Err() != nil || passes(err) || pointless(err)):
			return all, err
		case err != nil && !redfish.Absent(err):
			failed = append(failed, err)
		}
	}
	return all, errors.Join(failed...)
}

// follow goes along links from a document: the last one is a collection.
func (s *survey) follow(ctx context.Context, d redfish.Document, links []string) (string, error) {
	for i, link := range links {
		uri := d.Link(link)
		if uri == "" || i == len(links)-1 {
			return uri, nil
		}
		r, err := s.one(ctx, uri)
		if err != nil {
			return "", err
		}
		d = r.document()
	}
	return "", nil
}

func (s *survey) supplies(ctx context.Context, into diagnostics.Sink) error {
	file, err := s.below(ctx, "Chassis", maxResources, func(redfish.Document) []string {
		return []string{"PowerSubsystem", "PowerSupplies"}
	})
	if err == nil && len(file.Resources) == 0 {
		return diagnostics.Skip("the device shows no power supplies")
	}
	return errors.Join(err, keep(into, "power_supplies.json", file))
}

func (s *survey) sensors(ctx context.Context, into diagnostics.Sink) error {
	file, err := s.below(ctx, "Chassis", maxSensors, func(redfish.Document) []string { return []string{"Sensors"} })
	if err == nil && len(file.Resources) == 0 {
		return diagnostics.Skip("the device shows no sensors")
	}
	return errors.Join(err, keep(into, "sensors.json", file))
}

// powerCollector reads the power state, and watches what must not change.
type powerCollector struct{ s *survey }

func (powerCollector) Name() string { return "power" }

func (powerCollector) Required() bool { return true }

func (p powerCollector) Collect(ctx context.Context, into diagnostics.Sink) error {
	reading, err := p.s.c.PowerState(ctx)
	if err != nil {
		return err
	}
	return into.JSON("power.json", map[string]string{
		"power_state": string(reading.State), "raw": string(reading.Raw),
	})
}

// Fingerprint has the power state, and when managers and systems were started. What
// the device does not tell cannot be watched.
func (p powerCollector) Fingerprint(ctx context.Context) (diagnostics.Fingerprint, error) {
	reading, err := p.s.c.PowerState(ctx)
	if err != nil {
		return nil, err
	}
	out := diagnostics.Fingerprint{"state": string(reading.State)}
	// What was read earlier is not what is there now.
	fresh := &survey{c: p.s.c, most: p.s.most}
	for _, name := range []string{"Managers", "Systems"} {
		found, err := fresh.root(ctx, name)
		if err != nil {
			return nil, err
		}
		for i := range found.Resources {
			d := found.Resources[i].document()
			for _, member := range []string{"LastResetTime", "FirmwareVersion", "UUID"} {
				if text := d.Text(member); text != "" {
					out[found.Resources[i].URI+"."+member] = text
				}
			}
		}
	}
	return out, nil
}

// sortByURI gives resources a stable order.
func sortByURI(list []resource) {
	slices.SortStableFunc(list, func(a, b resource) int { return strings.Compare(a.URI, b.URI) })
}
