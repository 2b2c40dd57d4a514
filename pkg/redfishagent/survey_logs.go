// SPDX-License-Identifier: Apache-2.0

package redfishagent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rackbus/rackbus/pkg/diagnostics"
	"github.com/rackbus/rackbus/pkg/redfish"
)

// logService is one log of the device.
type logService struct {
	URI  string `json:"uri"`
	Name string `json:"name,omitempty"`
	// Total is how many entries the log has, Kept how many of them are here.
	Total int    `json:"total"`
	Kept  int    `json:"kept"`
	Error string `json:"error,omitempty"`
}

type logFile struct {
	Services []logService `json:"services"`
	// Entries are the newest ones of all the services, the newest first.
	Entries []json.RawMessage `json:"entries"`
}

// isSEL tells the log of the IPMI events from all others.
func isSEL(d redfish.Document) bool {
	return strings.EqualFold(d.Text("Id"), "SEL") || d.Text("LogEntryType") == "SEL"
}

// logs collects the logs that are wanted, of systems, managers and chassis. What was
// read before an error is kept.
func (s *survey) logs(name string, wanted func(redfish.Document) bool) func(context.Context, diagnostics.Sink) error {
	return func(ctx context.Context, into diagnostics.Sink) error {
		var file logFile
		err := s.readLogs(ctx, wanted, &file)
		switch {
		case len(file.Services) > 0:
		case err != nil:
			return err
		default:
			return diagnostics.Skip("the device has no such log")
		}
		slices.SortStableFunc(file.Entries, func(a, b json.RawMessage) int { return cmp.Compare(created(b), created(a)) })
		return errors.Join(err, into.JSON(name, file))
	}
}

// readLogs reads one log after the other. A log that cannot be read is told in the file;
// an error means that others were not read either.
func (s *survey) readLogs(ctx context.Context, wanted func(redfish.Document) bool, file *logFile) error {
	var failed []error
	for _, owner := range []string{"Systems", "Managers", "Chassis"} {
		services, err := s.below(ctx, owner, maxResources, func(redfish.Document) []string { return []string{"LogServices"} })
		failed = append(failed, err)
		if err != nil && (ctx.Err() != nil || passes(err) || pointless(err)) {
			break
		}
		sortByURI(services.Resources)
		for i := range services.Resources {
			d := services.Resources[i].document()
			if services.Resources[i].Error != "" || !wanted(d) {
				continue
			}
			if err := s.log(ctx, d, file); err != nil {
				return errors.Join(append(failed, err)...)
			}
		}
	}
	return errors.Join(failed...)
}

func created(entry json.RawMessage) string { return redfish.Document{Body: entry}.Text("Created") }

// log reads one log. An error means that it makes no sense to go on.
func (s *survey) log(ctx context.Context, service redfish.Document, file *logFile) error {
	uri := service.Link("Entries")
	out := logService{URI: service.URI, Name: service.Text("Name")}
	if uri != "" {
		lctx, cancel := context.WithTimeout(ctx, s.logLimit)
		defer cancel()
		err := s.entries(lctx, uri, &out, file)
		switch {
		case err == nil:
		case ctx.Err() == nil && lctx.Err() != nil:
			out.Error = fmt.Sprintf("not read to its end within %s", s.logLimit)
		case ctx.Err() != nil || passes(err) || pointless(err):
			out.Error = err.Error()
			file.Services = append(file.Services, out)
			return err
		default:
			out.Error = err.Error()
		}
	}
	file.Services = append(file.Services, out)
	return nil
}

// entries reads the entries of a log, the newest first.
func (s *survey) entries(ctx context.Context, uri string, out *logService, file *logFile) error {
	list, err := s.list(ctx, uri, maxLogEntries)
	if err != nil {
		return err
	}
	out.Total = list.Total
	reads := 0
	for _, member := range slices.Backward(list.URIs) {
		body, shown := list.Documents[member]
		if !shown {
			if reads++; reads > maxLogReads {
				break
			}
			r, err := s.one(ctx, member)
			if err != nil {
				return err
			}
			if r.Error != "" {
				out.Error = r.Error
				continue
			}
			body = r.Body
		}
		out.Kept++
		file.Entries = append(file.Entries, body)
	}
	return nil
}
