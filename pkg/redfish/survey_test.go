// SPDX-License-Identifier: Apache-2.0

package redfish_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/redfish"
	"github.com/rackbus/rackbus/pkg/secret"
)

const logURI = systemURI + "/LogServices/SEL/Entries"

// TestMembersOfALongLog reads a log of three pages whose entries stand in the
// collection, and keeps the last ones.
func TestMembersOfALongLog(t *testing.T) {
	t.Parallel()
	b := newBMC(t)
	const pages, size = 3, 4
	b.on(logURI, func(w http.ResponseWriter, r *http.Request) {
		var skip int
		_, _ = fmt.Sscan(r.URL.Query().Get("$skip"), &skip)
		var entries []string
		for i := skip; i < skip+size; i++ {
			entries = append(entries, fmt.Sprintf(`{"@odata.id":"%s/%d","Id":"%d","Message":"entry %d"}`, logURI, i, i, i))
		}
		next := ""
		if skip+size < pages*size {
			next = fmt.Sprintf(`,"Members@odata.nextLink":"%s?$skip=%d"`, logURI, skip+size)
		}
		ok(fmt.Sprintf(`{"Members@odata.count":%d,"Members":[%s]%s}`, pages*size, strings.Join(entries, ","), next))(w, r)
	})
	list, err := b.client(gb200).Members(t.Context(), logURI, 5)
	require.NoError(t, err)
	require.Equal(t, pages*size, list.Total)
	require.Equal(t, []string{logURI + "/7", logURI + "/8", logURI + "/9", logURI + "/10", logURI + "/11"}, list.URIs)
	require.Len(t, list.Documents, 5)
	require.Contains(t, string(list.Documents[logURI+"/11"]), "entry 11")
}

// TestMembersThatAreLinks are told as such, without those that lead elsewhere.
func TestMembersThatAreLinks(t *testing.T) {
	t.Parallel()
	b := newBMC(t)
	b.on(logURI, ok(`{"Members":[{"@odata.id":"`+logURI+`/1"},{"@odata.id":"https://192.0.2.9/x"},{"@odata.id":"/../etc"},7]}`))
	list, err := b.client(gb200).Members(t.Context(), logURI, 5)
	require.NoError(t, err)
	require.Equal(t, []string{logURI + "/1"}, list.URIs)
	require.Empty(t, list.Documents)
	b.on(logURI, ok(`{"Members":[],"Members@odata.nextLink":"`+logURI+`"}`))
	_, err = b.client(gb200).Members(t.Context(), logURI, 5)
	require.ErrorContains(t, err, "do not end")
	_, err = b.client(gb200).Members(t.Context(), "/redfish/v1/Nothing", 5)
	require.True(t, redfish.Absent(err), "%v", err)
}

// TestDocumentHidesOurPassword also when it stands in JSON in another form.
func TestDocumentHidesOurPassword(t *testing.T) {
	t.Parallel()
	b := newBMC(t)
	b.endpoint.Password = secret.New(`p"q\r`)
	b.on(systemURI, ok(`{"Id":"System_0","Echo":"it is p\"q\\r","Links":{"Chassis":[{"@odata.id":"/redfish/v1/Chassis/1"}]}}`))
	d, err := b.client(gb200).Document(t.Context(), systemURI)
	require.NoError(t, err)
	require.Equal(t, "it is XXXX", d.Text("Echo"))
	require.Equal(t, "System_0", d.Text("Id"))
	require.Equal(t, "/redfish/v1/Chassis/1", d.Link("Links", "Chassis"))
	require.Empty(t, d.Text("Links", "Nothing"))
	b.on(systemURI, ok(`[]`))
	_, err = b.client(gb200).Document(t.Context(), systemURI)
	require.ErrorContains(t, err, "not a JSON object")
	_, err = b.client(gb200).Document(t.Context(), "https://192.0.2.9/redfish/v1")
	require.Error(t, err)
	require.NotContains(t, err.Error(), "192.0.2.9")
}

// TestMembersAreBounded: the pages of a device that shows more than memory takes are not
// read to their end.
func TestMembersAreBounded(t *testing.T) {
	t.Parallel()
	b := newBMC(t)
	const size, pages = 1 << 10, 8
	read := 0
	b.on(logURI, func(w http.ResponseWriter, r *http.Request) {
		var page int
		_, _ = fmt.Sscan(r.URL.Query().Get("$skip"), &page)
		read++
		next := ""
		if page+1 < pages {
			next = fmt.Sprintf(`,"Members@odata.nextLink":"%s?$skip=%d"`, logURI, page+1)
		}
		ok(fmt.Sprintf(`{"Members":[{"@odata.id":"%s/%d","Message":"%s"}]%s}`, logURI, page, strings.Repeat("x", size), next))(w, r)
	})
	small := func(o *redfish.Options) { o.MembersBytes = 3 * size }
	_, err := b.client(gb200, small).Members(t.Context(), logURI, pages)
	require.ErrorContains(t, err, "more than 3072 bytes")
	require.Equal(t, 3, read, "each member is a little larger")
	read = 0
	list, err := b.client(gb200, small).Members(t.Context(), logURI, 2)
	require.NoError(t, err, "what is not kept does not count")
	require.Len(t, list.URIs, 2)
	require.Equal(t, pages, read)
}
