// SPDX-License-Identifier: Apache-2.0

package ssh

import "strings"

// Quote makes a text one argument of a POSIX shell, whatever it holds.
func Quote(text string) string {
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
