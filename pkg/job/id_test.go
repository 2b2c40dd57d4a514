// SPDX-License-Identifier: Apache-2.0

package job

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// uuidV4 is the text form of RFC 9562 with version 4 and variant 10.
var uuidV4 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// genID draws a top-level id.
func genID(t *rapid.T, label string) ID {
	id, err := NewFamily(bytes.NewReader(rapid.SliceOfN(rapid.Byte(), 12, 12).Draw(t, label)))
	require.NoError(t, err)
	return id
}

// testID returns a fixed top-level id.
func testID(seed byte) ID {
	id, err := NewFamily(bytes.NewReader(bytes.Repeat([]byte{seed}, 12)))
	if err != nil {
		panic(err)
	}
	return id
}

func TestIDIsUUIDAndRecoverable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		top := genID(t, "random")
		i := rapid.Uint32().Draw(t, "index")
		child := top.Child(i)

		require.Regexp(t, uuidV4, child.String())
		require.Equal(t, i, child.Index())
		require.Equal(t, top, child.Parent())
		require.Equal(t, i == 0, child.IsTopLevel())
		require.Equal(t, top.Prefix(), child.Prefix())
		require.True(t, child.SameFamily(top))

		hexText := strings.ReplaceAll(child.String(), "-", "")
		require.Equal(t, hexText[:24], child.Prefix(), "prefix is the first 24 hex digits")

		parsed, err := ParseID(child.String())
		require.NoError(t, err)
		require.Equal(t, child, parsed)

		p := rapid.IntRange(1, 256).Draw(t, "partitions")
		require.Equal(t, top.Partition(p), child.Partition(p), "a family shares its partition")
		require.Less(t, child.Partition(p), p)

		text, err := json.Marshal(child)
		require.NoError(t, err)
		var back ID
		require.NoError(t, json.Unmarshal(text, &back))
		require.Equal(t, child, back)
	})
}

func TestParseIDRefuses(t *testing.T) {
	good := testID(0x5a).Child(7).String()
	for name, text := range map[string]string{
		"empty":           "",
		"blank":           " ",
		"no dashes":       strings.ReplaceAll(good, "-", "") + "0000",
		"upper case":      strings.ToUpper(good),
		"short":           good[:35],
		"long":            good + "0",
		"dash moved":      good[:7] + "-" + good[7:8] + good[9:],
		"not hex":         "g" + good[1:],
		"version 1":       good[:14] + "1" + good[15:],
		"variant 0":       good[:19] + "0" + good[20:],
		"nil uuid":        "00000000-0000-0000-0000-000000000000",
		"surrounding":     "{" + good[:34] + "}",
		"very long":       strings.Repeat("x", 4096),
		"multi byte text": strings.Repeat("é", 18),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseID(text)
			var invalid *InvalidIDError
			require.ErrorAs(t, err, &invalid)
			require.LessOrEqual(t, len(invalid.Text), 64)
			require.Contains(t, err.Error(), "invalid job id")
		})
	}
	var id ID
	require.Error(t, id.UnmarshalText([]byte("nope")))
	require.True(t, id.IsZero())
}

func TestNewFamilyReportsRandomFailure(t *testing.T) {
	broken := errors.New("no entropy")
	_, err := NewFamily(iotest.ErrReader(broken))
	require.ErrorIs(t, err, broken)
	_, err = NewFamily(bytes.NewReader(make([]byte, 11)))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

func TestPartitionsAreEven(t *testing.T) {
	random := rand.NewChaCha8([32]byte{1})
	const families, partitions = 8000, 8
	var hits [partitions]int
	for range families {
		id, err := NewFamily(random)
		require.NoError(t, err)
		hits[id.Partition(partitions)]++
	}
	for p, n := range hits {
		require.InDelta(t, families/partitions, n, 200, "partition %d", p)
	}
	require.Panics(t, func() { testID(1).Partition(0) })
	require.Panics(t, func() { testID(1).Partition(257) })
}
