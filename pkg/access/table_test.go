// SPDX-License-Identifier: Apache-2.0

package access

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the table of docs/access.md instead of comparing it")

const (
	tableBegin = "<!-- table -->\n"
	tableEnd   = "<!-- end of table -->\n"
)

// table is what docs/access.md shows of the rules.
func table() string {
	var b strings.Builder
	b.WriteString("\n| Service | Role | RPCs |\n| --- | --- | --- |\n")
	names := make(map[string]map[Role][]string)
	var services []string
	for method := range Methods() {
		service, name, _ := strings.Cut(method[1:], "/")
		rule, _ := RuleOf(method)
		if names[service] == nil {
			names[service] = make(map[Role][]string)
			services = append(services, service)
		}
		names[service][rule.Least] = append(names[service][rule.Least], name)
	}
	for _, service := range services {
		for r := None; r < roleCount; r++ {
			if rpcs := names[service][r]; len(rpcs) > 0 {
				fmt.Fprintf(&b, "| `%s` | `%s` | %s |\n", service, r, strings.Join(rpcs, ", "))
			}
		}
	}
	b.WriteString("\n")
	return b.String()
}

func TestTable(t *testing.T) {
	t.Parallel()
	path := filepath.Join("..", "..", "docs", "access.md")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	head, rest, ok := strings.Cut(string(text), tableBegin)
	require.True(t, ok)
	shown, tail, ok := strings.Cut(rest, tableEnd)
	require.True(t, ok)
	if *update {
		shown = table()
		require.NoError(t, os.WriteFile(path, []byte(head+tableBegin+shown+tableEnd+tail), 0o644))
	}
	require.Equal(t, table(), shown, "run: go test ./access -run TestTable -update")
}

// TestDocumentedExample takes the example of the documentation at its word.
func TestDocumentedExample(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "access.md"))
	require.NoError(t, err)
	lists := make(map[string][]string)
	for line := range strings.Lines(string(text)) {
		key, value, ok := strings.Cut(line, " = [")
		if !ok {
			continue
		}
		for _, p := range strings.Split(strings.TrimSuffix(strings.TrimSpace(value), "]"), ", ") {
			lists[strings.TrimSpace(key)] = append(lists[strings.TrimSpace(key)], strings.Trim(p, `"`))
		}
	}
	require.Len(t, lists, 3)
	p, err := NewPolicy(Settings{Viewers: lists["viewers"], Operators: lists["operators"], Admins: lists["admins"]})
	require.NoError(t, err)
	for name, want := range map[string]Role{
		"uri:spiffe://example.org/ns/a/sa/dashboard": Viewer, "dns:x.mon.example.net": Viewer,
		"uri:spiffe://example.org/ns/prod/sa/nico-1": Operator, "uri:spiffe://example.org/ops/a/b": Operator,
		"email:ann@racks.example.net": Admin, "cn:rack-admin": Admin,
		"uri:spiffe://example.org/ops": None, "cn:ann@racks.example.net": None,
	} {
		require.Equal(t, want, p.role(certificate(t, name)), name)
	}
}
