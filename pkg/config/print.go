// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rackbus/rackbus/pkg/telemetry"
)

// String returns the effective values as TOML, secrets masked.
func (c *Config) String() string {
	var b strings.Builder
	section := ""
	for _, f := range c.fields() {
		table, key := splitPath(f.path)
		if table != section {
			fmt.Fprintf(&b, "\n[%s]\n", table)
			section = table
		}
		fmt.Fprintf(&b, "%s = %s\n", key, valueText(key, f.value))
	}
	return b.String()
}

// splitPath separates the table of a dotted path from its last part.
func splitPath(path string) (table, key string) {
	i := strings.LastIndexByte(path, '.')
	if i < 0 {
		return "", path
	}
	return path[:i], path[i+1:]
}

// valueText returns a value in TOML, on one line.
func valueText(key string, v reflect.Value) string {
	switch {
	case v.Type() == durationType:
		return quote(durationText(time.Duration(v.Int())))
	case v.Type() == reflect.TypeFor[InventoryProfile]():
		return profileText(v.Interface().(InventoryProfile))
	}
	switch v.Kind() {
	case reflect.String:
		if telemetry.IsSecretKey(key) && v.String() != "" {
			return quote(telemetry.Mask)
		}
		return quote(telemetry.RedactText(v.String()))
	case reflect.Slice:
		items := make([]string, v.Len())
		for i := range items {
			items[i] = valueText(key, v.Index(i))
		}
		return "[" + strings.Join(items, ", ") + "]"
	case reflect.Map:
		var items []string
		for _, k := range slices.SortedFunc(maps.Keys(entries(v)), strings.Compare) {
			items = append(items, keyText(k)+" = "+valueText(k, v.MapIndex(reflect.ValueOf(k))))
		}
		return tableText(items)
	case reflect.Float64:
		return floatText(v.Float())
	default:
		return fmt.Sprint(v.Interface())
	}
}

func entries(v reflect.Value) map[string]struct{} {
	out := make(map[string]struct{}, v.Len())
	for _, k := range v.MapKeys() {
		out[k.String()] = struct{}{}
	}
	return out
}

func profileText(p InventoryProfile) string {
	var items []string
	if len(p.APNames) > 0 {
		items = append(items, "ap_names = "+valueText("ap_names", reflect.ValueOf(p.APNames)))
	}
	if len(p.FlintDevices) > 0 {
		items = append(items, "flint_devices = "+valueText("flint_devices", reflect.ValueOf(p.FlintDevices)))
	}
	return tableText(items)
}

func tableText(items []string) string {
	if len(items) == 0 {
		return "{}"
	}
	return "{ " + strings.Join(items, ", ") + " }"
}

// quote writes a TOML basic string; JSON escapes are a subset of its escapes.
func quote(text string) string {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(text); err != nil {
		return `""` // a string always encodes
	}
	return strings.TrimSuffix(b.String(), "\n")
}

var bareKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

func keyText(key string) string {
	if bareKey.MatchString(key) {
		return key
	}
	return quote(key)
}

// floatText keeps a decimal point, without which TOML reads an integer.
func floatText(f float64) string {
	text := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}

// durationText drops the zero units of time.Duration's form: "1h" for "1h0m0s".
func durationText(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
