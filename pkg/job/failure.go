// SPDX-License-Identifier: Apache-2.0

package job

import "fmt"

// ErrorCode is the class of a failure. The numbers are those of
// rackbus.v1.JobErrorCode.
type ErrorCode uint8

// The classes of failures.
const (
	CodeUnspecified ErrorCode = iota
	CodeInternal
	CodeOther
	CodeInvalidArgument
	CodeFailedPrecondition
	CodeClientError
	CodeServerError
	CodeTimeout
	CodeInvalidResponse
	CodeUnauthenticated
	CodeTargetNotFound
	CodeFileNotFound
	CodeUpdateInProgress

	codeCount
)

// codeRow maps an ErrorCode onto what the published API knows.
type codeRow struct {
	name     string
	display  string
	label    string
	jobError int32 // number in rack_manager.JobError
	firmware int32 // number in rack_manager.FirmwareUpdateError
}

// Codes without a number of their own share the nearest: a failed precondition
// is a client error, and the firmware enum calls most of them client failures.
var codes = [codeCount]codeRow{
	CodeUnspecified:        {"Unspecified", "unspecified", "unspecified", 0, 1},
	CodeInternal:           {"Internal", "internal", "internal", 1, 8},
	CodeOther:              {"Other", "other", "other", 2, 6},
	CodeInvalidArgument:    {"InvalidArgument", "invalid argument", "invalid_argument", 3, 3},
	CodeFailedPrecondition: {"FailedPrecondition", "failed precondition", "failed_precondition", 11, 3},
	CodeClientError:        {"ClientError", "client error", "client_error", 11, 3},
	CodeServerError:        {"ServerError", "server error", "server_error", 12, 5},
	CodeTimeout:            {"Timeout", "timeout", "timeout", 13, 10},
	CodeInvalidResponse:    {"InvalidResponse", "invalid response", "invalid_response", 14, 9},
	CodeUnauthenticated:    {"Unauthenticated", "unauthenticated", "unauthenticated", 15, 3},
	CodeTargetNotFound:     {"TargetNotFound", "target not found", "target_not_found", 21, 4},
	CodeFileNotFound:       {"FileNotFound", "file not found", "file_not_found", 22, 2},
	CodeUpdateInProgress:   {"UpdateInProgress", "update in progress", "update_in_progress", 23, 13},
}

// Valid reports whether c is a known class; CodeUnspecified is one.
func (c ErrorCode) Valid() bool { return c < codeCount }

func (c ErrorCode) row() codeRow {
	if c.Valid() {
		return codes[c]
	}
	return codes[CodeInternal]
}

// String returns the name used in result_json, for example "UpdateInProgress".
func (c ErrorCode) String() string {
	if c.Valid() {
		return codes[c].name
	}
	return fmt.Sprintf("ErrorCode(%d)", uint8(c))
}

// Display returns the class in words, for example "update in progress".
func (c ErrorCode) Display() string { return c.row().display }

// Label returns the value of the error_code label of metrics.
func (c ErrorCode) Label() string { return c.row().label }

// JobError returns the number in the published enum JobError.
func (c ErrorCode) JobError() int32 { return c.row().jobError }

// FirmwareUpdateError returns the number in the published enum FirmwareUpdateError.
// CodeUnspecified, the code of a job that did not fail, is SUCCESS (1) there.
func (c ErrorCode) FirmwareUpdateError() int32 { return c.row().firmware }

// ParseErrorCode finds a class by the name that String gives it.
func ParseErrorCode(name string) (ErrorCode, bool) {
	for c := range codes {
		if codes[c].name == name {
			return ErrorCode(c), true
		}
	}
	return CodeUnspecified, false
}

// DeviceAnswer is what a device said when it refused, credentials masked.
type DeviceAnswer struct {
	MessageID  string
	Message    string
	Severity   string
	Resolution string
	// HTTPStatus is 0 when the answer did not come over HTTP.
	HTTPStatus int32
}

// Failure says why a job did not complete. It is never changed after it was made,
// so records and events may share one.
type Failure struct {
	Code        ErrorCode
	FailureCode FailureCode
	// Message is shown to callers as error_message.
	Message string
	// Phase is the part of the workflow that failed, for example "upload".
	Phase string
	// Device is nil when no device answered.
	Device *DeviceAnswer
}

// NewFailure returns a failure whose class is the one its code belongs to.
func NewFailure(code FailureCode, message string) *Failure {
	return &Failure{Code: code.ErrorCode(), FailureCode: code, Message: message}
}
