// SPDX-License-Identifier: Apache-2.0

package hardware_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// suite is the tests of a folder: for each test function the texts in its file, of which names of subtests are made.
type suite map[string]map[string]bool

// read parses the test files of a folder.
func read(t *testing.T, folder string) suite {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
	require.NoError(t, err)
	require.NotEmpty(t, files, folder)
	s := suite{}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		require.NoError(t, err)
		texts := map[string]bool{}
		ast.Inspect(file, func(n ast.Node) bool {
			if l, is := n.(*ast.BasicLit); is && l.Kind == token.STRING {
				text, err := strconv.Unquote(l.Value)
				require.NoError(t, err)
				texts[strings.Trim(strings.ReplaceAll(text, " ", "_"), "_")] = true
			}
			return true
		})
		for _, d := range file.Decls {
			if f, is := d.(*ast.FuncDecl); is && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				s[f.Name.Name] = texts
			}
		}
	}
	return s
}

// has reports whether a test exists. A subtest does when its name is a text of the file, a node type, a power operation,
// or put together from these.
func (s suite) has(name string) error {
	parts := strings.Split(name, "/")
	texts, found := s[parts[0]]
	if !found {
		return fmt.Errorf("there is no function %s", parts[0])
	}
	for _, part := range parts[1:] {
		if texts[part] {
			continue
		}
		rest := part
		for _, typ := range hardware() {
			rest = strings.TrimPrefix(rest, typ.ID)
		}
		longest := ""
		for _, op := range operations() {
			for _, spelling := range []string{op.String(), strings.ToLower(op.String())} {
				if strings.HasSuffix(rest, "_"+spelling) && len(spelling) > len(longest) {
					longest = spelling
				}
			}
		}
		rest = strings.Trim(strings.TrimSuffix(rest, longest), "_")
		if rest != "" && !texts[rest] {
			return fmt.Errorf("%s has no part %s", parts[0], part)
		}
	}
	return nil
}

// all are the tests of the tables by folder, each once.
func all() map[string]map[string]bool {
	listed := faultRows()
	for _, typ := range hardware() {
		listed = append(listed, rows(typ)...)
	}
	out := map[string]map[string]bool{}
	for _, r := range listed {
		for _, c := range r.tests {
			if out[c.folder] == nil {
				out[c.folder] = map[string]bool{}
			}
			out[c.folder][c.name] = true
		}
	}
	return out
}

func TestCitedTestsExist(t *testing.T) {
	for folder, names := range all() {
		s := read(t, folder)
		for name := range names {
			require.NoError(t, s.has(name), folder)
		}
	}
}

// The guide names files and tests that are there.
func TestGuide(t *testing.T) {
	guide, err := os.ReadFile(filepath.Join(root, "docs", "adding-hardware.md"))
	require.NoError(t, err)
	files := regexp.MustCompile("`((?:pkg|sim|services|test)/[a-z0-9_/-]+\\.go)`").FindAllStringSubmatch(string(guide), -1)
	require.NotEmpty(t, files)
	for _, f := range files {
		if strings.HasSuffix(f[1], "/acme.go") {
			continue // the example's own
		}
		require.FileExists(t, filepath.Join(root, f[1]))
	}
	tests := regexp.MustCompile("`([a-z0-9/-]+)` `(Test[A-Za-z0-9]+)`").FindAllStringSubmatch(string(guide), -1)
	require.NotEmpty(t, tests)
	for _, c := range tests {
		require.NoError(t, read(t, c[1]).has(c[2]), c[1])
	}
}

func TestMissingTestsAreFound(t *testing.T) {
	s := read(t, trays)
	for _, name := range []string{
		"TestNothing", "TestHardware/compute_gb200_nvidia/power_gets", "TestHardware/toaster/power_get", "TestHardware/x/power_set_off",
	} {
		require.Error(t, s.has(name), name)
	}
	require.NoError(t, s.has("TestHardware/compute_gb200_nvidia/power_set_graceful_shutdown"))
}
