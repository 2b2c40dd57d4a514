// SPDX-License-Identifier: Apache-2.0

package hardware_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// serviceReports are the field reports about the bus, the gRPC edge and jobs, by the folder whose tests show them.
func serviceReports() map[string]string {
	return map[string]string{
		"pkg/admission":          "A1 C3 C5 K13",
		"pkg/agent":              "A3 A5 A6 A10 A11 B6 B11",
		"pkg/bus":                "A7 A9 B1 B4 B5 B7 B9 B10 B14 C3 C8",
		"pkg/process":            "C8",
		"services/jobs":          "A11 C2 K4",
		"services/api":           "C2 C6 C7 D1 D3 D8 K6 K9 K10",
		"services/compute-agent": "D6",
		"services/switch-agent/internal/security": "K7",
		"test/e2e":   "D4 K3",
		"test/crash": "B12 B14 C8 K1 K11",
	}
}

// serviceRows are the numbers of these reports by their letter. Those that are missing there were never given.
func serviceRows() map[string]string {
	return map[string]string{
		"A": "1 3 5 6 7 9 10 11",
		"B": "1 4 5 6 7 9 10 11 12 14",
		"C": "2 3 5 6 7 8",
		"D": "1 3 4 6 8",
		"K": "1 3 4 6 7 9 10 11 13",
	}
}

var (
	reportsInFunction = regexp.MustCompile(`^Test((?:[A-K][0-9]+)+)(?:[A-Z]|$)`)
	reportInSubtest   = regexp.MustCompile(`^([A-K][0-9]+)_`)
	report            = regexp.MustCompile(`[A-K][0-9]+`)
)

// reports returns the ids with which names of tests and subtests of a folder begin.
func (s suite) reports() map[string]bool {
	out := map[string]bool{}
	for name, texts := range s {
		if m := reportsInFunction.FindStringSubmatch(name); m != nil {
			for _, id := range report.FindAllString(m[1], -1) {
				out[id] = true
			}
		}
		for text := range texts {
			if m := reportInSubtest.FindStringSubmatch(text); m != nil {
				out[m[1]] = true
			}
		}
	}
	return out
}

// Each field report about the services has a test that is named after it.
func TestServiceReportsHaveTests(t *testing.T) {
	missing := map[string]bool{}
	for letter, numbers := range serviceRows() {
		for number := range strings.FieldsSeq(numbers) {
			missing[letter+number] = true
		}
	}
	for folder, ids := range serviceReports() {
		there := read(t, folder).reports()
		for id := range strings.FieldsSeq(ids) {
			require.True(t, there[id], "%s: %s", folder, id)
			delete(missing, id)
		}
	}
	require.Empty(t, missing)
}

// The rows are those of the list of field reports, where that is at hand.
func TestServiceReportsAreAll(t *testing.T) {
	list, err := os.ReadFile(filepath.Join(root, "..", "shared", "spec", "field-reports.md"))
	if err != nil {
		t.Skip("the list of field reports is not beside this clone")
	}
	listed := map[string][]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| ([ABCDK])([0-9]+) \|`).FindAllStringSubmatch(string(list), -1) {
		listed[m[1]] = append(listed[m[1]], m[2])
	}
	require.Len(t, listed, len(serviceRows()))
	for letter, numbers := range serviceRows() {
		require.Equal(t, listed[letter], strings.Fields(numbers), letter)
	}
}

func TestReportsAreReadFromNames(t *testing.T) {
	s := suite{"TestB9B10Watch": {"C8_the_broker_is_away": true}, "TestA100": {}, "TestK1lower": {}, "TestBatch": {"K1": true}}
	ids := []string{}
	for id := range s.reports() {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	require.Equal(t, []string{"A100", "B10", "B9", "C8"}, ids)
}
