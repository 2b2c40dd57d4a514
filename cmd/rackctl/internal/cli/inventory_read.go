// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// parseCSV reads a table with a head.
func parseCSV(file string, raw []byte) ([]entry, error) {
	r := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(raw, []byte("\xef\xbb\xbf")))) // Excel writes a byte order mark
	r.TrimLeadingSpace, r.Comment, r.FieldsPerRecord = true, '#', -1
	head, err := r.Read()
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	if err != nil {
		return nil, csvFault(file, err)
	}
	line, _ := r.FieldPos(0)
	var faults []error
	for i := range head {
		head[i] = strings.ToLower(strings.TrimSpace(head[i]))
		switch {
		case len(head) == 1 && strings.ContainsAny(head[i], ";\t"):
			return nil, &fault{file, line, "the columns are to be separated by commas"}
		case !knownColumn(head[i]):
			faults = append(faults, &fault{file, line, fmt.Sprintf("unknown column %q", head[i])})
		case slices.Index(head, head[i]) < i:
			faults = append(faults, &fault{file, line, fmt.Sprintf("column %s is there twice", head[i])})
		}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	var out []entry
	for {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			return out, errors.Join(faults...)
		}
		if err != nil {
			return nil, errors.Join(append(faults, csvFault(file, err))...)
		}
		line, _ := r.FieldPos(0)
		if len(record) != len(head) {
			faults = append(faults, &fault{file, line, fmt.Sprintf("%d fields where the head has %d columns", len(record), len(head))})
			continue
		}
		e := entry{line: line, values: make(map[string]string, len(head))}
		for i, value := range record {
			e.values[head[i]] = strings.TrimSpace(value)
		}
		out = append(out, e)
	}
}

func csvFault(file string, err error) error {
	var parse *csv.ParseError
	if errors.As(err, &parse) {
		return &fault{file, parse.Line, parse.Err.Error()}
	}
	return fmt.Errorf("%s: %w", file, err)
}

// parseYAML reads a document with nodes and defaults, or a list of nodes. JSON is
// YAML too.
func parseYAML(file string, raw []byte) ([]entry, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(doc.Content) == 0 {
		return nil, nil
	}
	p := &yamlParser{file: file}
	defaults := entry{values: make(map[string]string)}
	list := doc.Content[0]
	if list.Kind == yaml.MappingNode {
		top := list
		list = nil
		for i := 0; i+1 < len(top.Content); i += 2 {
			switch key, value := top.Content[i], top.Content[i+1]; key.Value {
			case "defaults":
				p.mapping(value, &defaults)
			case "nodes":
				list = value
			default:
				p.fault(key, "unknown key %q; there are defaults and nodes", key.Value)
			}
		}
	}
	var out []entry
	switch {
	case list == nil:
	case list.Kind != yaml.SequenceNode:
		p.fault(list, "nodes is no list")
	default:
		for _, item := range list.Content {
			e := entry{line: item.Line, values: make(map[string]string)}
			p.mapping(item, &e)
			e.inherit(defaults)
			out = append(out, e)
		}
	}
	return out, errors.Join(p.faults...)
}

// inherit takes what the entry lacks from the defaults. A password goes with its
// source: an entry with one of its own takes none.
func (e *entry) inherit(defaults entry) {
	for _, side := range endpoints {
		own := false
		for _, key := range []string{keyPassword, keyPasswordEnv, keyPasswordFile} {
			own = own || e.values[side+"_"+key] != ""
		}
		for _, key := range endpointKeys {
			name := side + "_" + key
			if strings.HasPrefix(key, keyPassword) && own {
				continue
			}
			if e.values[name] == "" && defaults.values[name] != "" {
				e.values[name] = defaults.values[name]
			}
		}
	}
	for _, name := range []string{colRack, colType, colProfile} {
		if e.values[name] == "" {
			e.values[name] = defaults.values[name]
		}
	}
}

type yamlParser struct {
	file   string
	faults []error
}

func (p *yamlParser) fault(at *yaml.Node, format string, args ...any) {
	p.faults = append(p.faults, &fault{p.file, at.Line, fmt.Sprintf(format, args...)})
}

// mapping reads a node, or the defaults, into an entry.
func (p *yamlParser) mapping(m *yaml.Node, e *entry) {
	if m.Kind != yaml.MappingNode {
		p.fault(m, "a node is a mapping with rack, node, type, bmc and host")
		return
	}
	for i := 0; i+1 < len(m.Content); i += 2 {
		key, value := m.Content[i], m.Content[i+1]
		switch {
		case slices.Contains(endpoints, key.Value) && value.Kind == yaml.MappingNode:
			for k := 0; k+1 < len(value.Content); k += 2 {
				p.scalar(value.Content[k], key.Value+"_"+value.Content[k].Value, value.Content[k+1], e)
			}
		default:
			p.scalar(key, key.Value, value, e)
		}
	}
}

func (p *yamlParser) scalar(key *yaml.Node, name string, value *yaml.Node, e *entry) {
	switch {
	case !knownColumn(name):
		p.fault(key, "unknown key %q", name)
	case value.Kind != yaml.ScalarNode:
		p.fault(value, "%s is no text or number", name)
	case e.values[name] != "":
		p.fault(key, "%s is there twice", name)
	case value.Tag != "!!null":
		text := value.Value
		if !strings.HasSuffix(name, "_"+keyPassword) {
			text = strings.TrimSpace(text)
		}
		e.values[name] = text
	}
}
