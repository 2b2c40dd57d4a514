// SPDX-License-Identifier: Apache-2.0

package nvue

import (
	"context"
	"encoding/base64"
	"net/http"

	"github.com/rackbus/rackbus/pkg/secret"
)

// Hello reads /nvue_v1/system, whose content does not matter: an answer means
// that NVOS is up and knows us.
func (c *Client) Hello(ctx context.Context) error {
	_, err := c.get(ctx, "say hello", resource("system"))
	return err
}

// ProbeCredentials gives the HTTP status of /nvue_v1/system, body unread. Any
// status but 401 means that the credentials were accepted.
func (c *Client) ProbeCredentials(ctx context.Context) (status int, err error) {
	return c.status(ctx, call{op: "probe credentials", method: http.MethodGet, path: resource("system")})
}

// forced is the parameter of actions that would ask on a terminal.
type forced struct {
	Force bool `json:"force"`
}

// PowerCycle cuts and restores the power of the whole switch.
func PowerCycle() Action {
	return Action{what: "power-cycle switch", path: resource("system"), verb: "power-cycle", params: forced{true}}
}

// ResetToFactory returns the switch to factory defaults, accounts included, and
// reboots it.
func ResetToFactory() Action {
	return Action{what: "reset switch to factory defaults", path: resource("system", "factory-default"), verb: "reset", params: forced{true}}
}

// SetUserPassword changes the password of an account. The password and its
// encoded form are hidden from all texts from then on.
func SetUserPassword(user string, password secret.Value) Edit {
	encoded := base64.StdEncoding.EncodeToString(password.Bytes())
	return Edit{
		what: "password", method: http.MethodPatch, path: resource("system", "aaa", "user", user),
		body:    map[string]string{"password": encoded},
		secrets: []secret.Value{password, secret.New(encoded)},
	}
}

const (
	enabled  = "enabled"
	disabled = "disabled"
)

func onOff(on bool) string {
	if on {
		return enabled
	}
	return disabled
}
