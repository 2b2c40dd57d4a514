// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

func addYes(cmd *cobra.Command) *bool {
	return cmd.Flags().BoolP("yes", "y", false, "do not ask")
}

// confirm asks before something that cannot be undone. Where nobody can be asked,
// --yes has to be given.
func (p *program) confirm(yes bool, format string, args ...any) error {
	if yes {
		return nil
	}
	question := fmt.Sprintf(format, args...)
	if p.env.Confirm == nil {
		return usagef("this needs --yes where nobody can be asked: %s?", question)
	}
	answer, err := p.env.Confirm(question + "? [y/N] ")
	if err != nil || !slices.Contains([]string{"y", "yes"}, strings.ToLower(answer)) {
		return &exitError{ExitInterrupted, fmt.Errorf("nothing was done")}
	}
	return nil
}
