// SPDX-License-Identifier: Apache-2.0

package job_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

var update = flag.Bool("update", false, "write docs/failure-codes.md instead of comparing it")

const (
	repository = "../.."
	tableFiles = "failure_*.go"
)

// TestFailureReference: docs/failure-codes.md is what the table says.
func TestFailureReference(t *testing.T) {
	want, path := failureReference(), filepath.Join(repository, job.RunbookPage)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
	}
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, want, string(got), "run: go test ./pkg/job -run TestFailureReference -update")
}

func failureReference() string {
	var b strings.Builder
	b.WriteString(`# Failure codes

A job that did not complete has a failure code: a stable word that is never renamed or given another meaning. GetJob, the
events and rackctl show it beside the message, the phase and the device's own answer. This page is made from the table in
` + "`pkg/job`" + `; every section is what the ` + "`runbook`" + ` of a failure leads to.

**Again** says whether the same may be asked for again: *as it is*; *after a fix*, since it fails in the same way until the
cause is gone; or *after inspection*, since the hardware may be half changed. Retry by machine only what says *as it is*.

The class decides the numbers in the published API. Firmware updates tell failures of some phases as ` + "`OTHER`" + ` there,
whatever their class, as its clients expect; the failure code is the same in any case.
`)
	for _, g := range job.FailureGroups() {
		fmt.Fprintf(&b, "\n## %s\n\n| Code | Meaning | Again |\n| --- | --- | --- |\n", g.Title)
		for _, c := range g.Codes {
			fmt.Fprintf(&b, "| [`%s`](#%s) | %s | %s |\n", c.FailureCode, strings.ToLower(string(c.FailureCode)), c.Meaning, c.Retry)
		}
		for _, c := range g.Codes {
			fmt.Fprintf(&b, "\n### %s\n\n%s.\n\n%s\n\nAgain: %s. Class: %s; `JobError` %s (%d), `FirmwareUpdateError` %s (%d).\n",
				c.FailureCode, strings.ToUpper(c.Meaning[:1])+c.Meaning[1:], c.Advice, c.Retry, c.Code.Display(),
				rackmanager.JobError(c.Code.JobError()), c.Code.JobError(),
				rackmanager.FirmwareUpdateError(c.Code.FirmwareUpdateError()), c.Code.FirmwareUpdateError())
		}
	}
	return b.String()
}

// TestEveryFailureCodeIsInTheTable: each constant has a row, and each row a constant
// that something of ours can fail with.
func TestEveryFailureCodeIsInTheTable(t *testing.T) {
	constants := failureConstants(t)
	require.Len(t, constants, len(job.FailureCodes()))
	for name, code := range constants {
		_, ok := code.Info()
		require.True(t, ok, "%s (%s) has no row", name, code)
	}
	used := map[string]bool{}
	for _, file := range sources(t, "pkg", "services") {
		if ok, _ := filepath.Match(tableFiles, filepath.Base(file.name)); ok && strings.HasSuffix(filepath.Dir(file.name), "pkg/job") {
			continue
		}
		ast.Inspect(file.syntax, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				used[id.Name] = true
			}
			return true
		})
	}
	for name := range constants {
		require.True(t, used[name] || strings.HasPrefix(name, "FailureIronic"), "nothing fails with %s", name)
	}
}

// TestFailureCodesAreNamedByTheirConstants: a code in a literal could be misspelt,
// and would have no row.
func TestFailureCodesAreNamedByTheirConstants(t *testing.T) {
	for _, file := range sources(t, "pkg", "services", "cmd") {
		ast.Inspect(file.syntax, func(n ast.Node) bool {
			var value ast.Expr
			switch n := n.(type) {
			case *ast.CallExpr: // job.FailureCode("X")
				if sel, ok := n.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "FailureCode" && len(n.Args) == 1 {
					value = n.Args[0]
				}
			case *ast.KeyValueExpr: // FailureCode: "X"
				if id, ok := n.Key.(*ast.Ident); ok && id.Name == "FailureCode" {
					value = n.Value
				}
			}
			lit, ok := value.(*ast.BasicLit)
			require.False(t, ok && lit.Kind == token.STRING, "%s: a failure code from a literal", file.name)
			return true
		})
	}
}

func failureConstants(t *testing.T) map[string]job.FailureCode {
	t.Helper()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	out := map[string]job.FailureCode{}
	for _, name := range files {
		syntax, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(syntax, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			if id, ok := spec.Type.(*ast.Ident); !ok || id.Name != "FailureCode" || len(spec.Values) != 1 {
				return true
			}
			code, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			out[spec.Names[0].Name] = job.FailureCode(code)
			return true
		})
	}
	return out
}

type source struct {
	name   string
	syntax *ast.File
}

// sources are the Go files that are no tests, and not generated.
func sources(t *testing.T, dirs ...string) []source {
	t.Helper()
	var out []source
	for _, dir := range dirs {
		err := filepath.WalkDir(filepath.Join(repository, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			abs, err := filepath.Abs(path)
			if err != nil {
				return err
			}
			syntax, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			out = append(out, source{abs, syntax})
			return err
		})
		require.NoError(t, err)
	}
	return out
}
