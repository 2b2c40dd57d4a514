// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

var (
	durationType = reflect.TypeFor[time.Duration]()
	profilesType = reflect.TypeFor[map[string]InventoryProfile]()
)

// field is one key of the schema.
type field struct {
	path  string // dotted
	value reflect.Value
	owner reflect.Type
	name  string // of the Go field, to find its doc comment
}

// section reports whether v is a table of the schema rather than a value.
func section(v reflect.Type) bool { return v.Kind() == reflect.Struct }

// fieldsOf returns the keys of the schema below the struct v, in order.
func fieldsOf(prefix string, v reflect.Value) []field {
	var out []field
	for i := range v.NumField() {
		f := v.Type().Field(i)
		tag := f.Tag.Get("koanf")
		if tag == "" {
			continue
		}
		path := prefix + tag
		if section(f.Type) {
			out = append(out, fieldsOf(path+".", v.Field(i))...)
			continue
		}
		out = append(out, field{path: path, value: v.Field(i), owner: v.Type(), name: f.Name})
	}
	return out
}

func (c *Config) fields() []field { return fieldsOf("", reflect.ValueOf(c).Elem()) }

// retired are sections of the published service that have no meaning here.
var retired = map[string]string{
	"postgres": "state lives on the bus; remove this section",
}

// decode puts a merged tree of values into c and notes what does not fit.
func (c *Config) decode(tree map[string]any, faults *Faults) {
	fields := c.fields()
	byPath := make(map[string]field, len(fields))
	known := make([]string, 0, len(fields))
	sections := make(map[string]bool)
	for _, f := range fields {
		byPath[f.path] = f
		known = append(known, f.path)
		for i := range f.path {
			if f.path[i] == '.' {
				sections[f.path[:i]] = true
			}
		}
	}
	var walk func(prefix string, table map[string]any)
	walk = func(prefix string, table map[string]any) {
		for _, key := range slices.Sorted(maps.Keys(table)) {
			path := prefix + key
			f, isField := byPath[path]
			switch reason, gone := retired[path]; {
			case gone:
				faults.add(path, nil, reason)
			case isField:
				decodeValue(path, table[key], f.value, faults)
			case sections[path]:
				sub, ok := table[key].(map[string]any)
				if !ok {
					faults.add(path, table[key], "must be a table")
					continue
				}
				walk(path+".", sub)
			default:
				unknownKeys(path, table[key], known, faults)
			}
		}
	}
	walk("", tree)
}

// unknownKeys names every value of an unknown section by its full path.
func unknownKeys(path string, value any, known []string, faults *Faults) {
	table, ok := value.(map[string]any)
	if !ok || len(table) == 0 {
		faults.unknown(path, known)
		return
	}
	for _, key := range slices.Sorted(maps.Keys(table)) {
		unknownKeys(path+"."+key, table[key], known, faults)
	}
}

func decodeValue(path string, raw any, dst reflect.Value, faults *Faults) {
	if dst.Type() == profilesType {
		if table, ok := raw.(map[string]any); ok {
			dst.Set(reflect.ValueOf(decodeProfiles(path, table, faults)))
		} else {
			faults.add(path, raw, "must be a table")
		}
		return
	}
	switch dst.Kind() {
	case reflect.Slice:
		decodeList(path, raw, dst, faults)
	case reflect.Map:
		decodeMap(path, raw, dst, faults)
	default:
		if reason := setScalar(raw, dst); reason != "" {
			faults.add(path, raw, reason)
		}
	}
}

// setScalar returns why raw does not fit, or "".
func setScalar(raw any, dst reflect.Value) string {
	if dst.Type() == durationType {
		text, ok := raw.(string)
		if !ok {
			return `must be a duration in quotes, such as "30s"`
		}
		d, err := time.ParseDuration(strings.TrimSpace(text))
		if err != nil {
			return `is no duration, such as "30s" or "1h30m"`
		}
		dst.SetInt(int64(d))
		return ""
	}
	switch dst.Kind() {
	case reflect.String:
		text, ok := raw.(string)
		if !ok {
			return "must be text in quotes"
		}
		dst.SetString(text)
	case reflect.Bool:
		b, ok := raw.(bool)
		if !ok {
			return "must be true or false"
		}
		dst.SetBool(b)
	case reflect.Int:
		n, ok := raw.(int64)
		if !ok || dst.OverflowInt(n) {
			return "must be a whole number"
		}
		dst.SetInt(n)
	case reflect.Uint16:
		n, ok := raw.(int64)
		if !ok || n < 0 || n > math.MaxUint16 {
			return "must be a whole number from 0 to 65535"
		}
		dst.SetUint(uint64(n))
	case reflect.Float64:
		switch n := raw.(type) {
		case float64:
			dst.SetFloat(n)
		case int64:
			dst.SetFloat(float64(n))
		default:
			return "must be a number"
		}
	default:
		panic(fmt.Sprintf("config: no decoder for %s", dst.Type())) // a field type added without one; any load shows it
	}
	return ""
}

func decodeList(path string, raw any, dst reflect.Value, faults *Faults) {
	list, ok := raw.([]any)
	if !ok {
		faults.add(path, raw, "must be a list")
		return
	}
	before := len(*faults)
	out := reflect.MakeSlice(dst.Type(), len(list), len(list))
	for i, item := range list {
		decodeValue(fmt.Sprintf("%s[%d]", path, i), item, out.Index(i), faults)
	}
	if len(*faults) == before { // else later rules would complain about gaps
		dst.Set(out)
	}
}

// decodeMap adds to the entries that are there, so that a file can replace one
// default of a table without naming all.
func decodeMap(path string, raw any, dst reflect.Value, faults *Faults) {
	table, ok := raw.(map[string]any)
	if !ok {
		faults.add(path, raw, "must be a table")
		return
	}
	if dst.IsNil() {
		dst.Set(reflect.MakeMap(dst.Type()))
	}
	for _, key := range slices.Sorted(maps.Keys(table)) {
		before := len(*faults)
		item := reflect.New(dst.Type().Elem()).Elem()
		decodeValue(path+"."+key, table[key], item, faults)
		if len(*faults) == before {
			dst.SetMapIndex(reflect.ValueOf(key), item)
		}
	}
}

// typed turns the text of an environment variable or flag into what TOML would
// give for the key, so that both take the same way. Text that does not fit the
// key stays text and is refused there.
func typed(path, text string) any {
	var target reflect.Type
	for _, f := range Default().fields() {
		t := f.value.Type()
		if f.path == path {
			target = t
			break
		}
		if t.Kind() == reflect.Map && strings.HasPrefix(path, f.path+".") {
			target = t.Elem()
			break
		}
	}
	if target == nil || target == durationType {
		return text
	}
	switch target.Kind() {
	case reflect.Bool:
		if b, err := strconv.ParseBool(text); err == nil {
			return b
		}
	case reflect.Int, reflect.Uint16:
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n
		}
	case reflect.Float64:
		if n, err := strconv.ParseFloat(text, 64); err == nil {
			return n
		}
	case reflect.Slice:
		list := []any{}
		for part := range strings.SplitSeq(text, ",") {
			if part = strings.TrimSpace(part); part != "" {
				list = append(list, part)
			}
		}
		return list
	default:
	}
	return text
}
