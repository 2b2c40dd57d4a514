// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
)

func TestTokenIsReversibleAndFitsASubject(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.OneOf(rapid.String(), rapid.Custom(func(t *rapid.T) string {
			return string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
		})).Draw(t, "id")
		token, err := Token(id)
		if err != nil {
			require.ErrorIs(t, err, ErrBadID)
			require.True(t, id == "" || len(encodeToken(id)) > maxTokenBytes)
			return
		}
		require.LessOrEqual(t, len(token), maxTokenBytes)
		require.NotContains(t, token, ".")
		require.NotEqual(t, noNode, token)
		require.True(t, server.IsValidLiteralSubject(token), "%q", token)
		back, err := DecodeToken(token)
		require.NoError(t, err)
		require.Equal(t, id, back)
	})
}

func TestDifferentIDsHaveDifferentTokens(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.StringN(1, 8, 16).Draw(t, "a"), rapid.StringN(1, 8, 16).Draw(t, "b")
		require.Equal(t, a == b, encodeToken(a) == encodeToken(b))
	})
}

func TestDecodeTokenRefusesBrokenEscapes(t *testing.T) {
	t.Parallel()
	for _, token := range []string{"=", "=4", "a=zz", "="} {
		_, err := DecodeToken(token)
		require.ErrorIs(t, err, ErrBadID, token)
	}
}

func TestCheckRefNamesTheFault(t *testing.T) {
	t.Parallel()
	require.NoError(t, CheckRef(node.Ref{RackID: "a b/c", NodeID: "ä.*>"}))
	require.ErrorContains(t, CheckRef(node.Ref{NodeID: "n"}), "rack id")
	require.ErrorContains(t, CheckRef(node.Ref{RackID: "r", NodeID: strings.Repeat(".", 43)}), "node id")
}

func TestSubjects(t *testing.T) {
	t.Parallel()
	id, err := job.ParseID("01020304-0506-4708-890a-0b0c00000003")
	require.NoError(t, err)
	ref := node.Ref{RackID: "rack.1", NodeID: "n:1"}
	for want, got := range map[string]string{
		"$KV.rb.job.0102030405064708890a0b0c.00000003":                               recordSubject(id),
		"$KV.rb.job.0102030405064708890a0b0c.*":                                      familySubjects(id),
		"$KV.rb.node.rack=2E1.n=3A1":                                                 lockSubject(ref),
		"rb.cmd.compute.rack=2E1.n=3A1":                                              commandSubject(node.FamilyCompute, ref),
		"rb.park.rack=2E1.n=3A1.01020304-0506-4708-890a-0b0c00000003":                parkSubject(ref, id),
		"rb.timer.deadline.01020304-0506-4708-890a-0b0c00000003":                     timerSubject(TimerDeadline, id),
		"rb.evt.v1.1.rack=2E1.=.01020304-0506-4708-890a-0b0c00000003.admitted":       eventSubject(1, ref.RackID, "", id, "admitted"),
		"rackbus.events.=.=.01020304-0506-4708-890a-0b0c00000003.firmware_update.ok": publicSubject("", "", id, "firmware_update", "ok"),
	} {
		require.Equal(t, want, got)
	}
	family, err := familyOf(id.Prefix())
	require.NoError(t, err)
	require.Equal(t, id.Parent(), family)
}
