// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"encoding/json"
	"strings"

	"github.com/stmcginnis/gofish/schemas"
)

// stateMessages are the message names that mean "not in this state" although
// the device answers a plain 400.
//
//	ChassisPowerStateOffRequired     NVIDIA: AUX cycle while the host is on
//	InvalidOperationForSystemState   HPE iLO: right after a power change
//	PropertyValueConflict, ResourceInUse, OperationNotAllowed,
//	ServiceInUnknownState, ActionParameterValueConflict   DMTF Base registry
func stateMessage(id string) bool {
	switch messageName(id) {
	case "ChassisPowerStateOffRequired", "InvalidOperationForSystemState", "PropertyValueConflict",
		"ResourceInUse", "OperationNotAllowed", "ServiceInUnknownState", "ActionParameterValueConflict":
		return true
	default:
		return false
	}
}

// argumentMessage reports names of the Base registry that blame the request.
func argumentMessage(id string) bool {
	name := messageName(id)
	return strings.HasPrefix(name, "ActionParameter") || strings.HasPrefix(name, "PropertyValue") ||
		name == "PropertyUnknown" || name == "PropertyMissing" || name == "ActionNotSupported"
}

// messageName is the last part of a message id: registries and their versions
// differ between firmware releases, the name does not.
func messageName(id string) string {
	return id[strings.LastIndexByte(id, '.')+1:]
}

// decodeMessages reads an array of Message objects, dropping what is odd.
func decodeMessages(raws []json.RawMessage) []schemas.Message {
	var out []schemas.Message
	for _, raw := range raws {
		d, err := parseDocument(raw)
		if err != nil {
			continue
		}
		m := schemas.Message{
			Message:         clip(d.text("Message")),
			MessageID:       clip(d.text("MessageId")),
			MessageSeverity: schemas.Health(d.text("MessageSeverity")),
			Severity:        d.text("Severity"), //nolint:staticcheck // older devices send only this one
			Resolution:      clip(d.text("Resolution")),
		}
		for _, arg := range d.list("MessageArgs") {
			if s, ok := scalarText(arg); ok {
				m.MessageArgs = append(m.MessageArgs, s)
			}
		}
		out = append(out, m)
	}
	return out
}

// severityOf gives the newer severity field, else the deprecated one.
func severityOf(m schemas.Message) schemas.Health {
	if m.MessageSeverity != "" {
		return m.MessageSeverity
	}
	return schemas.Health(m.Severity) //nolint:staticcheck // older devices send only this one
}

// extendedInfo finds the messages of an answer: inside "error" for failures, at
// the top for successes.
func extendedInfo(d document) []schemas.Message {
	const key = "@Message.ExtendedInfo"
	if e := d.object("error"); e != nil {
		messages := decodeMessages(e.list(key))
		if len(messages) == 0 && (e.text("code") != "" || e.text("message") != "") {
			messages = []schemas.Message{{MessageID: clip(e.text("code")), Message: clip(e.text("message"))}}
		}
		return messages
	}
	return decodeMessages(d.list(key))
}

// describe fills an error with the device's words.
func (e *Error) describe(body []byte) {
	d, err := parseDocument(body)
	if err != nil {
		return
	}
	messages := extendedInfo(d)
	if len(messages) == 0 {
		return
	}
	chosen := messages[0]
	for _, m := range messages {
		name := messageName(m.MessageID)
		if severityOf(m) != schemas.OKHealth && name != "Success" && name != "GeneralError" {
			chosen = m
			break
		}
	}
	e.MessageID, e.Message = chosen.MessageID, chosen.Message
	e.Severity, e.Resolution = severityOf(chosen), chosen.Resolution
	if e.Status == 400 || e.Status == 405 || e.Status == 422 {
		switch {
		case messageName(e.MessageID) == "SessionLimitExceeded":
			// Others hold the sessions; it passes.
			e.Code = CodeUnavailable
		case stateMessage(e.MessageID):
			e.Code = CodeFailedPrecondition
		case argumentMessage(e.MessageID):
			e.Code = CodeInvalidArgument
		}
	}
}

func clip(s string) string {
	s = strings.TrimSpace(s)
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "") + "…"
}
