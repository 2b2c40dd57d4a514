// SPDX-License-Identifier: Apache-2.0

package node

// Code is a stable, machine-readable cause of an Error. Every one of them is
// the caller's mistake (INVALID_ARGUMENT where a gRPC status is returned).
type Code string

// The causes of an Error.
const (
	CodeUnknownType            Code = "UNKNOWN_NODE_TYPE"
	CodeDescriptorRequired     Code = "NODE_DESCRIPTOR_REQUIRED"
	CodeAttributeNotSupported  Code = "NODE_DESCRIPTOR_ATTRIBUTE_NOT_SUPPORTED"
	CodeAttributeMissing       Code = "NODE_DESCRIPTOR_ATTRIBUTE_MISSING"
	CodeUnsupportedDescriptor  Code = "UNSUPPORTED_NODE_DESCRIPTOR"
	CodeDuplicateDescriptor    Code = "DUPLICATE_NODE_DESCRIPTOR"
	CodeProfileEmpty           Code = "INVENTORY_PROFILE_EMPTY"
	CodeProfileUnknown         Code = "INVENTORY_PROFILE_UNKNOWN"
	CodeEndpointMissing        Code = "ENDPOINT_MISSING"
	CodeAddressMissing         Code = "ENDPOINT_ADDRESS_MISSING"
	CodeMACMissing             Code = "ENDPOINT_MAC_MISSING"
	CodePortOutOfRange         Code = "ENDPOINT_PORT_OUT_OF_RANGE"
	CodeCredentialsUnsupported Code = "CREDENTIALS_UNSUPPORTED"
	CodeCredentialsMissing     Code = "CREDENTIALS_MISSING"
	CodeTargetNotIP            Code = "SWITCH_TARGET_NOT_AN_IP_ADDRESS"
	CodeTargetNotAllowed       Code = "SWITCH_TARGET_NOT_ALLOWED"
)

// Error is a refused node type, descriptor or endpoint. Decide by Code; the
// message is for people.
type Error struct {
	Code Code
	// Field is the request field at fault, for example "node_descriptor.role"
	// or "bmc_endpoint.port".
	Field   string
	Message string
}

// Error returns the message for people.
func (e *Error) Error() string { return e.Message }

// Is reports whether target is an *Error with the same Code; a target Field
// must match too when it is set.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && (t.Field == "" || t.Field == e.Field)
}
