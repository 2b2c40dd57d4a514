// SPDX-License-Identifier: Apache-2.0

package secret_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/secret"
)

func TestValueIsNeverPrinted(t *testing.T) {
	const planted = "pl4nted"
	v := secret.New(planted)
	type holder struct {
		Password secret.Value
	}
	h := holder{Password: v}

	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("login", "password", v, "holder", h)
	encoded, err := json.Marshal(h)
	require.NoError(t, err)

	for _, shown := range []string{
		fmt.Sprint(v), fmt.Sprintf("%v %+v %#v %s %q", v, v, v, v, v),
		fmt.Sprintf("%v %+v %#v", h, h, &h), log.String(), string(encoded),
	} {
		require.NotContains(t, shown, planted)
	}
	require.Equal(t, planted, v.Reveal())
}

func TestWipeReachesCopies(t *testing.T) {
	v := secret.New("gone")
	held := v
	v.Wipe()
	require.Equal(t, "\x00\x00\x00\x00", held.Reveal())
}

func TestUnmarshalTextKeepsItsOwnCopy(t *testing.T) {
	src := []byte("abc")
	var v secret.Value
	require.True(t, v.Empty())
	require.NoError(t, v.UnmarshalText(src))
	src[0] = 'x'
	require.Equal(t, "abc", v.Reveal())
}
