// SPDX-License-Identifier: Apache-2.0

package config

import (
	"embed"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strings"
)

// The doc comments of the structs are the reference, so the source travels in
// the binary.
//
//go:embed schema.go schema_*.go timing.go timing_switch.go
var schemaSource embed.FS

const referenceHead = `# Configuration

<!-- Generated from pkg/config; change it there and run: go test ./config -run TestReference -update -->

All processes read one TOML file: ` + "`--config PATH`" + `, default ` + "`" + DefaultPath + "`" + `. Missing keys take the defaults below. An unknown key is an error, and all faults of a file are listed together. ` + "`--print-config`" + ` shows the effective values with secrets masked.

Environment variables replace values of the file: ` + "`RACKBUS_`" + `, then the key in upper case with ` + "`__`" + ` for each dot, for example ` + "`RACKBUS_METRICS__PORT=9000`" + ` or ` + "`RACKBUS_JOBS__ON_BUSY__DEFAULT=queue`" + `. Lists are separated by commas. Variables without ` + "`__`" + ` that name no key are ignored. ` + "`--set key=value`" + ` replaces both, for example ` + "`--set timing.scale=0.01`" + `.

Durations are text with a unit: ` + "`\"500ms\"`, `\"30s\"`, `\"1h30m\"`" + `.

` + "`RACKBUS_ALLOW_INSECURE=1`" + ` in the environment is the second key to ` + "`tls.insecure`" + ` (flag ` + "`--insecure`" + `), ` + "`switches.allow_loopback_targets`" + `, ` + "`switches.test_ports`" + ` and ` + "`standalone.bus_listen`" + `; it has no place in the file.
`

// Reference returns the description of all keys as Markdown.
func Reference() (string, error) {
	docs, err := schemaDocs()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(referenceHead)
	last := "none"
	for _, f := range Default().fields() {
		table, key := splitPath(f.path)
		if table != last {
			heading := "[" + table + "]"
			if table == "" {
				heading = "Top level"
			}
			fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| Key | Default | Meaning |\n| --- | --- | --- |\n", heading, docs[f.owner.Name()])
			last = table
		}
		meaning := docs[f.owner.Name()+"."+f.name]
		if meaning == "" {
			return "", fmt.Errorf("field %s.%s has no doc comment", f.owner.Name(), f.name)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", key, defaultText(key, f.value), strings.ReplaceAll(meaning, "|", `\|`))
	}
	return b.String(), nil
}

func defaultText(key string, v reflect.Value) string {
	if (v.Kind() == reflect.String || v.Kind() == reflect.Map || v.Kind() == reflect.Slice) && v.Len() == 0 {
		return "unset"
	}
	return "`" + valueText(key, v) + "`"
}

// schemaDocs returns the doc comments of the structs ("Bus") and of their
// fields ("Bus.URLs"), each on one line.
func schemaDocs() (map[string]string, error) {
	files, err := schemaSource.ReadDir(".")
	if err != nil {
		return nil, fmt.Errorf("read schema: %w", err)
	}
	docs := make(map[string]string)
	for _, file := range files {
		source, err := schemaSource.ReadFile(file.Name())
		if err != nil {
			return nil, fmt.Errorf("read schema: %w", err)
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file.Name(), source, parser.ParseComments)
		if err != nil {
			return nil, fmt.Errorf("parse schema: %w", err)
		}
		for _, decl := range tree.Decls {
			types, ok := decl.(*ast.GenDecl)
			if !ok || types.Tok != token.TYPE {
				continue
			}
			spec := types.Specs[0].(*ast.TypeSpec)
			docs[spec.Name.Name] = oneLine(types.Doc)
			for _, field := range spec.Type.(*ast.StructType).Fields.List {
				for _, name := range field.Names {
					docs[spec.Name.Name+"."+name.Name] = oneLine(field.Doc)
				}
			}
		}
	}
	return docs, nil
}

func oneLine(doc *ast.CommentGroup) string { return strings.Join(strings.Fields(doc.Text()), " ") }
