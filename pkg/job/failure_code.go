// SPDX-License-Identifier: Apache-2.0

package job

import (
	"slices"
	"strings"
)

// FailureCode is a stable upper-case word for one cause of failure. Codes are
// never renamed or given another meaning; workflows may add their own.
type FailureCode string

// Retry says whether a failed job may be asked for again. The numbers are those of
// rackbus.v1.FailureRetry.
type Retry uint8

// The advices.
const (
	RetryUnspecified Retry = iota
	// RetryAsIs: the same request may be sent again as it is.
	RetryAsIs
	// RetryAfterFix: it fails in the same way until the cause is gone.
	RetryAfterFix
	// RetryAfterInspection: the hardware may be half changed. Somebody, or a
	// diagnosis, has to look before anything is sent to it again.
	RetryAfterInspection

	retryCount
)

// String gives the word of the documentation, for example "after inspection".
func (r Retry) String() string {
	if r < retryCount {
		return [retryCount]string{"unspecified", "as it is", "after a fix", "after inspection"}[r]
	}
	return "unspecified"
}

// RunbookPage is the page, within the source tree, that has a section for each code.
const RunbookPage = "docs/failure-codes.md"

// FailureCodeInfo explains a FailureCode.
type FailureCodeInfo struct {
	FailureCode FailureCode
	// Code is the class, which decides the numbers of the published API.
	Code ErrorCode
	// Meaning is one line for people.
	Meaning string
	Retry   Retry
	// Advice is what to do, in one or two sentences.
	Advice string
}

// Runbook is the section of RunbookPage about the code.
func (i FailureCodeInfo) Runbook() string {
	return RunbookPage + "#" + strings.ToLower(string(i.FailureCode))
}

// FailureGroup are the codes about one thing.
type FailureGroup struct {
	Title string
	Codes []FailureCodeInfo
}

// FailureGroups returns every known code by what it is about, in fresh slices.
func FailureGroups() []FailureGroup {
	return []FailureGroup{
		{"The request", slices.Clone(requestFailures[:])},
		{"The course of a job", slices.Clone(courseFailures[:])},
		{"Batches and rollouts", slices.Clone(batchFailures[:])},
		{"Connections to devices", slices.Clone(linkFailures[:])},
		{"Management controllers and their tasks", slices.Clone(deviceFailures[:])},
		{"Firmware", slices.Clone(firmwareFailures[:])},
		{"Power, hosts and validation", slices.Clone(hostFailures[:])},
		{"Switches", slices.Clone(switchFailures[:])},
		{"Diagnostics", slices.Clone(diagnosticsFailures[:])},
		{"Ironic", slices.Clone(ironicFailures[:])},
	}
}

// failureCodes are those of all groups; nothing changes them.
var failureCodes = allFailureCodes()

func allFailureCodes() []FailureCodeInfo {
	var all []FailureCodeInfo
	for _, g := range FailureGroups() {
		all = append(all, g.Codes...)
	}
	return all
}

// FailureCodes returns every known code with its meaning, in a fresh slice.
func FailureCodes() []FailureCodeInfo { return slices.Clone(failureCodes) }

// Info explains the code, and returns false for an unknown one.
func (c FailureCode) Info() (FailureCodeInfo, bool) {
	for i := range failureCodes {
		if failureCodes[i].FailureCode == c {
			return failureCodes[i], true
		}
	}
	return FailureCodeInfo{}, false
}

// ErrorCode returns the class the code belongs to; an unknown code is CodeOther.
func (c FailureCode) ErrorCode() ErrorCode {
	if info, ok := c.Info(); ok {
		return info.Code
	}
	return CodeOther
}
