// SPDX-License-Identifier: Apache-2.0

package nmxc

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConfigText(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want map[string]string
	}{
		"equals and white space": {"A=1\nB 2\nC\t3\n", map[string]string{"A": "1", "B": "2", "C": "3"}},
		"remarks and blanks":     {"# a=b\n;c=d\n\n   \n  A = 1  \r\n", map[string]string{"A": "1"}},
		"first separator":        {"A=b=c\nD e=f\n", map[string]string{"A": "b=c", "D e": "f"}},
		"several words":          {"A  two words\n", map[string]string{"A": "two words"}},
		"keys alone":             {"A\nB=\n=3\n", map[string]string{"A": "", "B": ""}},
		"last one counts":        {"A=1\nA=2", map[string]string{"A": "2"}},
		"nothing":                {"", map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Config{}
			got.add("f", c.text)
			require.Equal(t, Config{"f": c.want}, got)
		})
	}
}
