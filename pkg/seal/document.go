// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"encoding/json"
	"fmt"

	"github.com/rackbus/rackbus/pkg/secret"
)

// document is a sealed payload as a file holds it.
type document struct {
	V      int    `json:"v"`
	Kind   string `json:"kind"`
	KeyID  string `json:"key_id"`
	Sender string `json:"sender"`
	DEK    []byte `json:"dek"`
	Data   []byte `json:"data"`
}

// documentVersion is the layout of documents.
const documentVersion = 1

// EncodeDocument seals a payload of a kind into a text for a file, which only the
// agents of the session's family can open.
func EncodeDocument(s *Session, kind string, plaintext []byte) ([]byte, error) {
	box := s.Seal(documentAAD(kind), plaintext)
	text, err := json.MarshalIndent(document{documentVersion, kind, box.KeyID, box.Sender, box.DEK, box.Data}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("seal %s: %w", kind, err)
	}
	return append(text, '\n'), nil
}

// OpenDocument opens what EncodeDocument has sealed as the same kind.
func OpenDocument(o *Opener, kind string, text []byte) (secret.Value, error) {
	var d document
	if err := json.Unmarshal(text, &d); err != nil || d.V != documentVersion {
		// The decoder's error could show content of a file that was never sealed.
		return secret.Value{}, fmt.Errorf("open sealed %s: not a sealed document", kind)
	}
	if d.Kind != kind {
		return secret.Value{}, fmt.Errorf("open sealed %s: the document holds %q", kind, d.Kind)
	}
	plain, err := o.Open(documentAAD(kind), Box{KeyID: d.KeyID, Sender: d.Sender, DEK: d.DEK, Data: d.Data})
	if err != nil {
		return secret.Value{}, fmt.Errorf("open sealed %s: %w", kind, err)
	}
	return plain, nil
}

func documentAAD(kind string) []byte { return AAD("document", kind, "", "") }
