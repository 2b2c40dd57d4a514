// SPDX-License-Identifier: Apache-2.0

package gnmi

import (
	"strings"

	"github.com/rackbus/rackbus/pkg/secret"
	"github.com/rackbus/rackbus/pkg/telemetry"
)

// scrub removes the password from what the switch says.
func scrub(text string, password secret.Value) string {
	if password.Empty() {
		return text
	}
	return strings.ReplaceAll(text, password.Reveal(), telemetry.Mask)
}
