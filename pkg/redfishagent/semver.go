// SPDX-License-Identifier: Apache-2.0

package redfishagent

import "regexp"

// semverPattern is what nats.go's micro package accepts as a version.
var semverPattern = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)
