// SPDX-License-Identifier: Apache-2.0

package nvue

import (
	"context"
	"encoding/json"
)

// Survey reads a resource as the switch gives it, but for our own secrets, which
// are masked.
func (c *Client) Survey(ctx context.Context, segments ...string) (json.RawMessage, error) {
	path := resource(segments...)
	raw, err := c.get(ctx, opSurvey, path)
	if err != nil {
		return nil, err
	}
	return c.Masked(raw)
}

const opSurvey = "survey"

// Masked is a document of the switch without our own secrets.
func (c *Client) Masked(raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) == 0 {
		return raw, nil
	}
	masked := json.RawMessage(c.withoutOwn(string(raw)))
	if !json.Valid(masked) {
		// A password of digits may be part of a number.
		return nil, &Error{Op: opSurvey, Code: ErrBadResponse, Sent: true, reason: "the answer holds our password outside of a text"}
	}
	return masked, nil
}
