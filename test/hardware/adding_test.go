// SPDX-License-Identifier: Apache-2.0

package hardware_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/node"
)

const (
	productTable = "pkg/product/table.go"
	simTable     = "sim/bmc/products.go"
)

// example is a block of the guide: a file of its own, or an entry of a list in a file that is there.
type example struct{ path, what, text string }

// examples are the blocks of the guide that begin with a path, without the indentation of the list they stand in.
func examples(t *testing.T) []example {
	t.Helper()
	guide, err := os.ReadFile(filepath.Join(root, "docs", "adding-hardware.md"))
	require.NoError(t, err)
	var out []example
	for _, m := range regexp.MustCompile("(?s) {3}```go\n {3}// ([a-z0-9_/]+\\.go): ([a-z ]+)\n(.*?) {3}```\n").FindAllStringSubmatch(string(guide), -1) {
		var text strings.Builder
		for line := range strings.Lines(m[3]) {
			text.WriteString(strings.TrimPrefix(line, "   "))
		}
		out = append(out, example{path: m[1], what: m[2], text: text.String()})
	}
	return out
}

// apply adds a block to the source, which is empty for a file of its own.
func (e example) apply(t *testing.T, source string) string {
	t.Helper()
	// ends are the ends of the lists that blocks are added to.
	ends := map[string]string{
		productTable + " a row": "\n}\n",
		simTable + " a row":     "\n\t}\n}\n",
		simTable + " a model":   "\n)\n",
	}
	end, known := ends[e.path+" "+e.what]
	if !known {
		require.Equal(t, "new", e.what, e.path)
		require.Empty(t, source, e.path)
		return e.text
	}
	at := strings.LastIndex(source, end)
	if e.what == "a model" {
		first := strings.Index(source, " Model = iota + 1\n")
		require.Positive(t, first, e.path)
		at = first + strings.Index(source[first:], end)
	}
	require.Positive(t, at, e.path)
	return source[:at+1] + e.text + source[at+1:]
}

// The example of the guide is added to the sources, and nothing else: the table, a quirk file beside it, the simulator.
// With these, the tests of each operation pass on the new type as they are.
func TestAddingAProduct(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles an agent for the invented product")
	}
	const acme = "compute_gb300_acme"
	sources := map[string]string{}
	for _, e := range examples(t) {
		if _, read := sources[e.path]; !read {
			source, err := os.ReadFile(filepath.Join(root, e.path))
			require.True(t, err == nil || os.IsNotExist(err), e.path)
			sources[e.path] = string(source)
		}
		sources[e.path] = e.apply(t, sources[e.path])
	}
	var touched []string
	replace := map[string]string{}
	for path, source := range sources {
		touched = append(touched, path)
		file := filepath.Join(t.TempDir(), filepath.Base(path))
		require.NoError(t, os.WriteFile(file, []byte(source), 0o600))
		absolute, err := filepath.Abs(filepath.Join(root, path))
		require.NoError(t, err)
		replace[absolute] = file
	}
	require.ElementsMatch(t, []string{productTable, "pkg/product/acme.go", simTable, "sim/bmc/acme.go"}, touched)
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "overlay.json")
	require.NoError(t, os.WriteFile(file, overlay, 0o600))

	want := []string{
		"TestRowsAreWhole", "TestComponents", "TestTableIsComplete",
		"TestEveryNodeTypeHasACompleteProfile", "TestDeviceInfoOfEveryTray", "TestEveryNodeTypeIsPlanned", "TestTablesAreComplete",
	}
	functions := append(slices.Clone(want), "TestPowerOperationsOfEveryType", "TestHardware")
	for _, op := range operations() {
		want = append(want, "TestPowerOperationsOfEveryType/"+acme+"_"+op.String(),
			"TestHardware/"+acme+"/power_set_"+strings.ToLower(op.String()))
	}
	for _, operation := range []string{"power_get", "device_info", "inventory", "update_activate_verify"} {
		want = append(want, "TestHardware/"+acme+"/"+operation)
	}
	passed := passing(t, "^("+strings.Join(functions, "|")+")$/^"+acme, "-vet=off", "-overlay="+file, "./pkg/product",
		"./"+client, "./"+planning, "./pkg/firmware/manifest", "./"+trays, "./test/hardware")
	for _, name := range want {
		require.Contains(t, passed, name)
	}
}

// No code asks for a node type: it asks the table for what it wants to know. Only the simulator has a table of its own.
func TestTypesAreNamedInTheTable(t *testing.T) {
	ids := map[string]bool{}
	for _, typ := range node.Types() {
		ids[typ.ID] = true
	}
	named := map[string]bool{}
	for _, top := range []string{"pkg", "services", "cmd", "sim"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() && (d.Name() == "testdata" || strings.HasSuffix(d.Name(), "test")) {
				return filepath.SkipDir // what tests are made of
			}
			if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return nil
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if l, is := n.(*ast.BasicLit); is && l.Kind == token.STRING {
					if text, err := strconv.Unquote(l.Value); err == nil && ids[strings.ToLower(text)] {
						relative, _ := filepath.Rel(root, path)
						named[filepath.ToSlash(relative)] = true
					}
				}
				return true
			})
			return nil
		}))
	}
	require.Equal(t, map[string]bool{productTable: true, simTable: true}, named)
}
