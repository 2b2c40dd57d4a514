// SPDX-License-Identifier: Apache-2.0

// Package contract compares the compiled descriptors of the published API, and of the fabric
// controller's API that Rackbus calls, with the tables of their contracts, row by row and in both
// directions.
package contract

import (
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/proto/rackmanagerv2"
)

// row is one line of the table, or the same facts read from a descriptor. Its key is kind, scope
// and name; the rest is what must be equal.
type row struct {
	kind, scope, name string
	number            string
	typ               string
	label             string
	deprecated        bool
}

func (r row) key() string { return r.kind + " " + r.scope + " " + r.name }

func (r row) facts() string {
	return fmt.Sprintf("number=%q type=%q label=%q deprecated=%t", r.number, r.typ, r.label, r.deprecated)
}

func TestDescriptorsFollowTheTable(t *testing.T) {
	table := readTable(t, "rack_manager.tsv")
	require.Len(t, table, 2+2+53+10+78+152+463, "the table itself has lost or gained rows")

	served := slices.Concat(
		describe(rackmanager.File_rack_manager_proto),
		describe(rackmanagerv2.File_rack_manager_v2_proto),
	)
	for _, d := range diff(table, served) {
		t.Error(d)
	}
}

// Clients compile the published files by these names, and the second imports the first by its name.
func TestFileNames(t *testing.T) {
	require.Equal(t, "rack_manager.proto", rackmanager.File_rack_manager_proto.Path())
	require.Equal(t, "rack_manager_v2.proto", rackmanagerv2.File_rack_manager_v2_proto.Path())
	imports := rackmanagerv2.File_rack_manager_v2_proto.Imports()
	require.Equal(t, 1, imports.Len())
	require.Equal(t, "rack_manager.proto", imports.Get(0).Path())
}

// A second file that joins one of the packages would be part of the served contract unseen.
func TestNoOtherFileInThePackages(t *testing.T) {
	for _, pkg := range []protoreflect.FullName{"rack_manager", "rack_manager_v2"} {
		require.Equal(t, 1, protoregistry.GlobalFiles.NumFilesByPackage(pkg), "files in package %s", pkg)
	}
}

func TestNothingIsReservedNestedOrExtended(t *testing.T) {
	for _, file := range []protoreflect.FileDescriptor{
		rackmanager.File_rack_manager_proto,
		rackmanagerv2.File_rack_manager_v2_proto,
	} {
		require.Equal(t, protoreflect.Proto3, file.Syntax(), "syntax of %s", file.Path())
		require.Zero(t, file.Extensions().Len(), "extensions in %s", file.Path())
		for _, e := range protodesc.ToFileDescriptorProto(file).GetEnumType() {
			require.Empty(t, e.GetReservedRange(), "numbers reserved by %s", e.GetName())
			require.Empty(t, e.GetReservedName(), "names reserved by %s", e.GetName())
		}
		for _, m := range protodesc.ToFileDescriptorProto(file).GetMessageType() {
			require.Empty(t, m.GetReservedRange(), "numbers reserved by %s", m.GetName())
			require.Empty(t, m.GetReservedName(), "names reserved by %s", m.GetName())
			require.Empty(t, m.GetEnumType(), "enums nested in %s", m.GetName())
			require.Empty(t, withoutMapEntries(m.GetNestedType()), "messages nested in %s", m.GetName())
		}
	}
}

// TestDiffSeesEveryKindOfDeviation guards the guard: each change below must be reported, once.
func TestDiffSeesEveryKindOfDeviation(t *testing.T) {
	table := []row{
		{kind: "field", scope: "p.M", name: "a", number: "1", typ: "string", label: "singular"},
		{kind: "value", scope: "p.E", name: "E_A", number: "0"},
	}
	change := func(f func(*row)) []row {
		rows := slices.Clone(table)
		f(&rows[0])
		return rows
	}
	cases := map[string]struct {
		served []row
		want   string
	}{
		"missing":    {table[1:], "field p.M a: in the table, not in the descriptors"},
		"extra":      {append(slices.Clone(table), row{kind: "message", scope: "p", name: "X"}), "message p X: in the descriptors, not in the table"},
		"renamed":    {change(func(r *row) { r.name = "b" }), "field p.M a: in the table, not in the descriptors"},
		"renumbered": {change(func(r *row) { r.number = "2" }), `number="2"`},
		"retyped":    {change(func(r *row) { r.typ = "bytes" }), `type="bytes"`},
		"relabelled": {change(func(r *row) { r.label = "optional" }), `label="optional"`},
		"deprecated": {change(func(r *row) { r.deprecated = true }), "deprecated=true"},
	}
	require.Empty(t, diff(table, table))
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, strings.Join(diff(table, c.served), "\n"), c.want)
		})
	}
}

// diff reports every row of one side that the other lacks or has otherwise, in a stable order.
func diff(table, served []row) []string {
	want, got := index(table), index(served)
	var out []string
	for _, key := range slices.Sorted(maps.Keys(want)) {
		switch has, found := got[key]; {
		case !found:
			out = append(out, key+": in the table, not in the descriptors")
		case has != want[key]:
			out = append(out, fmt.Sprintf("%s: the table says %s, the descriptor says %s", key, want[key].facts(), has.facts()))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(got)) {
		if _, found := want[key]; !found {
			out = append(out, key+": in the descriptors, not in the table")
		}
	}
	return out
}

func index(rows []row) map[string]row {
	m := make(map[string]row, len(rows))
	for _, r := range rows {
		m[r.key()] = r
	}
	return m
}

func readTable(t *testing.T, name string) []row {
	t.Helper()
	f, err := os.Open("testdata/" + name)
	require.NoError(t, err)
	defer f.Close()

	in := csv.NewReader(f)
	in.Comma, in.LazyQuotes, in.FieldsPerRecord = '\t', true, 7
	header, err := in.Read()
	require.NoError(t, err)
	require.Equal(t, []string{"kind", "scope", "name", "number", "type", "label", "extra"}, header)

	var rows []row
	for {
		cells, err := in.Read()
		if err == io.EOF {
			require.Len(t, index(rows), len(rows), "the table has a row twice")
			return rows
		}
		require.NoError(t, err)
		rows = append(rows, row{
			kind: cells[0], scope: cells[1], name: cells[2], number: cells[3], typ: cells[4], label: cells[5],
			deprecated: cells[0] == "field" && cells[6] == "deprecated",
		})
	}
}

// describe turns a compiled file into rows of the table's form.
func describe(file protoreflect.FileDescriptor) []row {
	pkg := string(file.Package())
	rows := []row{{kind: "package", scope: pkg, name: pkg}}
	for i := range file.Services().Len() {
		rows = append(rows, describeService(file.Services().Get(i))...)
	}
	for i := range file.Enums().Len() {
		enum := file.Enums().Get(i)
		rows = append(rows, row{kind: "enum", scope: pkg, name: string(enum.Name())})
		for j := range enum.Values().Len() {
			value := enum.Values().Get(j)
			rows = append(rows, row{
				kind: "value", scope: string(enum.FullName()), name: string(value.Name()),
				number: strconv.Itoa(int(value.Number())),
			})
		}
	}
	for i := range file.Messages().Len() {
		message := file.Messages().Get(i)
		rows = append(rows, row{kind: "message", scope: pkg, name: string(message.Name())})
		for j := range message.Fields().Len() {
			rows = append(rows, describeField(message.Fields().Get(j)))
		}
	}
	return rows
}

func describeService(service protoreflect.ServiceDescriptor) []row {
	rows := []row{{kind: "service", scope: string(service.ParentFile().Package()), name: string(service.Name())}}
	for i := range service.Methods().Len() {
		method := service.Methods().Get(i)
		rows = append(rows, row{
			kind: "rpc", scope: string(service.FullName()), name: string(method.Name()),
			typ: streamed(method.IsStreamingClient()) + string(method.Input().FullName()) + " -> " +
				streamed(method.IsStreamingServer()) + string(method.Output().FullName()),
		})
	}
	return rows
}

// streamed makes a streaming RPC differ from the table, in which all are unary.
func streamed(yes bool) string {
	if yes {
		return "stream "
	}
	return ""
}

func describeField(field protoreflect.FieldDescriptor) row {
	r := row{
		kind: "field", scope: string(field.ContainingMessage().FullName()), name: string(field.Name()),
		number: strconv.Itoa(int(field.Number())), typ: fieldType(field), label: "singular",
		deprecated: field.Options().(*descriptorpb.FieldOptions).GetDeprecated(),
	}
	switch {
	case field.IsMap():
		r.label = "map"
		r.typ = "map<" + fieldType(field.MapKey()) + "," + fieldType(field.MapValue()) + ">"
	case field.IsList():
		r.label = "repeated"
	case field.HasOptionalKeyword():
		r.label = "optional"
	case field.ContainingOneof() != nil:
		r.label = "oneof:" + string(field.ContainingOneof().Name())
	}
	return r
}

func fieldType(field protoreflect.FieldDescriptor) string {
	switch field.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return string(field.Message().FullName())
	case protoreflect.EnumKind:
		return string(field.Enum().FullName())
	default:
		return field.Kind().String()
	}
}

func withoutMapEntries(messages []*descriptorpb.DescriptorProto) []*descriptorpb.DescriptorProto {
	return slices.DeleteFunc(slices.Clone(messages), func(m *descriptorpb.DescriptorProto) bool {
		return m.GetOptions().GetMapEntry()
	})
}
