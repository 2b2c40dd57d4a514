// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

const (
	baseRegistry   = "Base.1.18.1."
	updateRegistry = "Update.1.0."
	taskRegistry   = "TaskEvent.1.0.3."
)

// object is a JSON object.
type object = map[string]any

// answer is what a device says to one request. A nil body sends none.
type answer struct {
	status int
	header http.Header
	body   []byte
	// abort closes the connection instead: the client went away in the middle of its body.
	abort bool
}

func (a answer) with(key, value string) answer {
	if a.header == nil {
		a.header = http.Header{}
	}
	a.header.Set(key, value)
	return a
}

func (a answer) send(w http.ResponseWriter) {
	if a.abort {
		panic(http.ErrAbortHandler)
	}
	h := w.Header()
	for key, values := range a.header {
		h[key] = values
	}
	h.Set("OData-Version", "4.0")
	h.Set("Cache-Control", "no-store")
	if a.body != nil {
		h.Set("Content-Type", "application/json")
	}
	if a.status != http.StatusNoContent {
		h.Set("Content-Length", strconv.Itoa(len(a.body)))
	}
	w.WriteHeader(a.status)
	// A write error means that the client is gone; the request log sees it.
	_, _ = w.Write(a.body)
}

func jsonAnswer(status int, doc any) answer {
	body, err := json.Marshal(doc)
	if err != nil {
		return refusal(http.StatusInternalServerError, "InternalError", err.Error())
	}
	return answer{status: status, body: body}
}

// success is the body of an action that was accepted.
func success() answer {
	return jsonAnswer(http.StatusOK, object{"@Message.ExtendedInfo": []any{extended(
		baseRegistry+"Success", "The request was carried out.", "OK", "None.")}})
}

func noContent() answer { return answer{status: http.StatusNoContent} }

// refusal is a Redfish error; id is a message of the Base registry unless it names a registry itself.
func refusal(status int, id, text string, args ...string) answer {
	return jsonAnswer(status, ErrorBody(id, text, args...))
}

// ErrorBody returns a Redfish error object with one message. An id without a dot is of the Base registry.
func ErrorBody(id, text string, args ...string) map[string]any {
	if !strings.Contains(id, ".") {
		id = baseRegistry + id
	}
	return object{"error": object{
		"code":                  id,
		"message":               text,
		"@Message.ExtendedInfo": []any{extended(id, text, "Critical", "Correct the request or the device and try again.", args...)},
	}}
}

func extended(id, text, severity, resolution string, args ...string) object {
	if args == nil {
		args = []string{}
	}
	return object{
		"@odata.type":     "#Message.v1_1_1.Message",
		"MessageId":       id,
		"Message":         text,
		"MessageArgs":     args,
		"MessageSeverity": severity,
		"Resolution":      resolution,
	}
}

func notFound(path string) answer {
	return refusal(http.StatusNotFound, "ResourceMissingAtURI", fmt.Sprintf("There is no resource at %s.", path), path)
}

func notAllowed(method string) answer {
	return refusal(http.StatusMethodNotAllowed, "OperationNotAllowed",
		fmt.Sprintf("%s is not allowed on this resource.", method))
}
