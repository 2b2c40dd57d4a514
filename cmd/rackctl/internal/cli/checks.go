// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rackbus/rackbus/pkg/node"
)

// oneOf makes a command refuse a value of a flag that is none of the words, and offers them to shells.
func oneOf(cmd *cobra.Command, flag string, words ...string) {
	complete(cmd, flag, words)
	requires(cmd, func([]string) error {
		value := cmd.Flags().Lookup(flag).Value.String()
		if value == "" || slices.Contains(words, value) {
			return nil
		}
		return usagef("--%s %q is none of %s", flag, value, strings.Join(words, ", "))
	})
}

// addType is the flag for a node type. An unknown one would choose nothing, or be passed over.
func addType(cmd *cobra.Command, value *string, usage string) {
	cmd.Flags().StringVar(value, "type", "", usage)
	complete(cmd, "type", typeIDs())
	requires(cmd, func([]string) error {
		if *value == "" {
			return nil
		}
		if _, known := node.ByID(strings.ToLower(*value)); !known {
			return usagef("--type %q is no node type; there are %s", *value, strings.Join(typeIDs(), ", "))
		}
		return nil
	})
}

// notNegative makes a command refuse times that are less than none.
func notNegative(cmd *cobra.Command, flag string, value *time.Duration) {
	requires(cmd, func([]string) error {
		if *value < 0 {
			return usagef("--%s %s is less than none", flag, *value)
		}
		return nil
	})
}

// past is the flag --since: how long ago, in the units of Go and in days.
type past time.Duration

const day = 24 * time.Hour

// addSince is that flag.
func addSince(cmd *cobra.Command, usage string) *past {
	p := new(past)
	cmd.Flags().Var(p, "since", usage)
	register(cmd, "since", cobra.NoFileCompletions)
	return p
}

// String implements pflag.Value.
func (p *past) String() string {
	if *p == 0 {
		return ""
	}
	return time.Duration(*p).String()
}

// Type implements pflag.Value.
func (p *past) Type() string { return "duration" }

// Set implements pflag.Value.
func (p *past) Set(text string) error {
	d, err := time.ParseDuration(text)
	if days, found := strings.CutSuffix(text, "d"); found {
		var n uint64
		n, err = strconv.ParseUint(days, 10, 16)
		d = time.Duration(n) * day
	}
	if err != nil || d <= 0 {
		return fmt.Errorf("write how long ago, for example 90m, 24h or 7d")
	}
	*p = past(d)
	return nil
}

// before is the moment that is so long ago, nil without the flag.
func (p *past) before(now time.Time) *time.Time {
	if *p == 0 {
		return nil
	}
	return new(now.Add(-time.Duration(*p)))
}
