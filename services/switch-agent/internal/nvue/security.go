// SPDX-License-Identifier: Apache-2.0

package nvue

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"time"
)

// SelfSigned is the API certificate of a switch that was never given one.
const SelfSigned = "self-signed"

// GNMI is the telemetry server.
type GNMI struct {
	// State is enabled or disabled.
	State       string
	Certificate string
}

// GNMI reads the telemetry server. An answer without a state is ErrBadResponse.
func (c *Client) GNMI(ctx context.Context) (GNMI, error) {
	const op = "read gnmi server"
	path := resource("system", "gnmi-server")
	raw, err := c.get(ctx, op, path)
	if err != nil {
		return GNMI{}, err
	}
	d := asDocument(raw)
	g := GNMI{State: d.layered("state"), Certificate: d.layered("certificate")}
	if g.State == "" {
		return g, &Error{Op: op, Method: http.MethodGet, Path: path, Code: ErrBadResponse, Sent: true, reason: "the answer has no state"}
	}
	return g, nil
}

// GNMIClientCA reads the id of the CA whose clients the telemetry server admits,
// empty when there is none.
func (c *Client) GNMIClientCA(ctx context.Context) (string, error) {
	return c.leaf(ctx, "read gnmi mtls", resource("system", "gnmi-server", "mtls"), "ca-certificate")
}

// APICertificate reads the id of the certificate NVUE serves, which may be
// SelfSigned, or empty.
func (c *Client) APICertificate(ctx context.Context) (string, error) {
	return c.leaf(ctx, "read api certificate", resource("system", "api"), "certificate")
}

// APIClientCA reads the id of the CA whose clients NVUE admits, empty when there
// is none.
func (c *Client) APIClientCA(ctx context.Context) (string, error) {
	return c.leaf(ctx, "read api mtls", resource("system", "api", "mtls"), "ca-certificate")
}

// leaf reads one layered member; a wrong type counts as absent.
func (c *Client) leaf(ctx context.Context, op, path, key string) (string, error) {
	raw, err := c.get(ctx, op, path)
	if err != nil {
		return "", err
	}
	return asDocument(raw).layered(key), nil
}

func set(what, path, key, value string) Edit {
	return Edit{what: what, method: http.MethodPatch, path: path, body: map[string]string{key: value}}
}

// SetGNMIState switches the telemetry server on or off.
func SetGNMIState(on bool) Edit {
	return set("gnmi state", resource("system", "gnmi-server"), "state", onOff(on))
}

// SetGNMICertificate binds a certificate to the telemetry server.
func SetGNMICertificate(id string) Edit {
	return set("gnmi certificate", resource("system", "gnmi-server"), "certificate", id)
}

// SetGNMIClientCA makes the telemetry server demand client certificates of a CA.
func SetGNMIClientCA(id string) Edit {
	return set("gnmi client ca", resource("system", "gnmi-server", "mtls"), "ca-certificate", id)
}

// SetAPICertificate binds a certificate to NVUE. Its application cuts the
// connection.
func SetAPICertificate(id string) Edit {
	return set("api certificate", resource("system", "api"), "certificate", id)
}

// SetAPIClientCA makes NVUE demand client certificates of a CA.
func SetAPIClientCA(id string) Edit {
	return set("api client ca", resource("system", "api", "mtls"), "ca-certificate", id)
}

// Certificate is an imported certificate.
type Certificate struct {
	// ValidTo is as the switch gave it; NotAfter is the same as a time, zero when it
	// is no RFC 3339 date.
	ValidTo  string
	NotAfter time.Time
	// Installed are the services that use it, sorted.
	Installed []string
	Raw       json.RawMessage
}

// Certificate reads an imported certificate.
func (c *Client) Certificate(ctx context.Context, id string) (Certificate, error) {
	raw, err := c.get(ctx, "read certificate", resource("system", "security", "certificate", id))
	if err != nil {
		return Certificate{}, err
	}
	return certificate(raw), nil
}

func certificate(raw json.RawMessage) Certificate {
	d := asDocument(raw)
	out := Certificate{ValidTo: d.layered("valid-to"), Raw: raw}
	if t, err := time.Parse(time.RFC3339, out.ValidTo); err == nil {
		out.NotAfter = t
	}
	for _, layer := range []document{d, d.object("operational"), d.object("applied")} {
		for _, key := range [...]string{"installed", "[installed]"} {
			if out.Installed = names(layer[key]); len(out.Installed) > 0 {
				return out
			}
		}
	}
	return out
}

// names reads a list of names, an object keyed by name, or one name.
func names(raw json.RawMessage) []string {
	if s, ok := scalar(raw); ok && s != "" {
		return []string{s}
	}
	if d := asDocument(raw); d != nil {
		return slices.Sorted(maps.Keys(d))
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return nil
	}
	var out []string
	for _, e := range list {
		if s, ok := scalar(e); ok && s != "" {
			out = append(out, s)
		} else if d := asDocument(e); len(d) > 0 {
			out = append(out, slices.Sorted(maps.Keys(d))...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// CACertificate reads an imported CA as the switch gives it.
func (c *Client) CACertificate(ctx context.Context, id string) (json.RawMessage, error) {
	return c.get(ctx, "read ca certificate", resource("system", "security", "ca-certificate", id))
}

// ImportCA imports a CA from a file on the switch, for example
// "file:///home/admin/certs/run/ca.pem".
func ImportCA(id, uri string) Action {
	params := struct {
		URI string `json:"uri"`
	}{uri}
	return Action{what: "import ca certificate", path: resource("system", "security", "ca-certificate", id), verb: "import", params: params}
}

// ImportCertificate imports a certificate and its key from files on the switch.
func ImportCertificate(id, publicURI, privateURI string) Action {
	params := struct {
		Public  string `json:"uri-public-key"`
		Private string `json:"uri-private-key"`
	}{publicURI, privateURI}
	return Action{what: "import certificate", path: resource("system", "security", "certificate", id), verb: "import", params: params}
}
