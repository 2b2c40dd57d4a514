// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"strings"
	"testing"
)

// FuzzParse expects of every accepted location that its name can be a file's name,
// and that what is told of it has no user info, query or fragment.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"https://u:p@h.invalid:8081/a/b_1.2.fwpkg?q=1#f", "/srv/fw/b.bin", "file:///srv/b.bin", "b.bin", "http://[::1%25eth0]/b.bin",
		"https://h/a%2fb.bin", "https://h/..", "https://h//b.bin;x", "HTTPS://H/b.bin",
	} {
		f.Add("https", seed)
		f.Add("file", seed)
	}
	f.Fuzz(func(t *testing.T, typ, location string) {
		l, err := Parse(typ, location)
		if err != nil {
			return
		}
		if CheckName(l.Name()) != nil {
			t.Fatalf("%q has the name %q", location, l.Name())
		}
		if l.Transport != Web {
			return
		}
		if _, rest, _ := strings.Cut(l.String(), "://"); strings.ContainsAny(rest, "?#") || strings.Contains(strings.SplitN(rest, "/", 2)[0], "@") {
			t.Fatalf("%q is told as %q", location, l)
		}
	})
}
