// SPDX-License-Identifier: Apache-2.0

package nvue

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/rackbus/rackbus/pkg/secret"
)

func spdm(segments ...string) string {
	return resource(append([]string{"system", "security", "spdm"}, segments...)...)
}

// EvidenceComponents lists the components that can attest, sorted. An empty
// inventory is ErrFailedPrecondition.
func (c *Client) EvidenceComponents(ctx context.Context) ([]string, error) {
	const op = "list spdm components"
	path := at(spdm(), "operational")
	raw, err := c.get(ctx, op, path)
	if err != nil {
		return nil, err
	}
	var out []string
	for id := range maps.Keys(asDocument(raw)) {
		if strings.TrimSpace(id) != "" {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	if len(out) == 0 {
		return nil, &Error{Op: op, Method: http.MethodGet, Path: path, Code: ErrFailedPrecondition, Sent: true,
			reason: "the switch lists no component"}
	}
	return out, nil
}

// GenerateEvidence lets a component sign its measurements with a nonce, in
// lower-case hex. The nonce is hidden from all texts from then on.
func GenerateEvidence(component string, nonce secret.Value) Action {
	params := map[string]string{"nonce": nonce.Reveal()}
	return Action{what: "generate spdm evidence", path: spdm(component), verb: "generate", params: params, secrets: []secret.Value{nonce}, named: true}
}

// Measurements reads the signed measurements of a component as compact JSON. They
// are of use only as a whole; anything but an object with content is
// ErrBadResponse.
func (c *Client) Measurements(ctx context.Context, component string) ([]byte, error) {
	return c.evidence(ctx, "read spdm measurements", spdm(component, "measurements"))
}

// EvidenceCertificates reads the certificate chain of a component, like
// Measurements.
func (c *Client) EvidenceCertificates(ctx context.Context, component string) ([]byte, error) {
	return c.evidence(ctx, "read spdm certificates", spdm(component, "certificates"))
}

func (c *Client) evidence(ctx context.Context, op, path string) ([]byte, error) {
	raw, err := c.get(ctx, op, path)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if len(asDocument(raw)) == 0 || json.Compact(&out, raw) != nil {
		return nil, &Error{Op: op, Method: http.MethodGet, Path: path, Code: ErrBadResponse, Sent: true, reason: "the answer holds no evidence"}
	}
	return out.Bytes(), nil
}
