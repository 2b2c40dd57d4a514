// SPDX-License-Identifier: Apache-2.0

package computeagent

import "github.com/rackbus/rackbus/services/compute-agent/internal/validator"

// EnvironmentKind is the kind of the sealed document that holds the variables of
// the validation's commands; see seal.EncodeDocument.
const EnvironmentKind = validator.EnvironmentKind

// CheckEnvironment reports what is wrong with the variables in clear, without
// telling any of them.
func CheckEnvironment(plain []byte) error { return validator.CheckEnvironment(plain) }
