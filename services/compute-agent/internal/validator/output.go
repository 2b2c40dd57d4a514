// SPDX-License-Identifier: Apache-2.0

package validator

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/rackbus/rackbus/pkg/secret"
)

// capture keeps the beginning of an output for a log file, and its end for the
// result.
type capture struct {
	file *os.File
	left int64
	// tail is the end of the output; cut says that something came before.
	max  int
	tail []byte
	cut  bool
}

func newCapture(dir, name string, maxLog int64, maxTail int) (*capture, error) {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	return &capture{file: f, left: maxLog, max: maxTail}, nil
}

// Write never fails: a full disk must not end a validation.
func (c *capture) Write(p []byte) (int, error) {
	if keep := p[:min(int64(len(p)), c.left)]; len(keep) > 0 {
		n, err := c.file.Write(keep)
		c.left -= int64(n)
		if err != nil {
			c.left = 0
		}
	}
	c.tail = append(c.tail, p...)
	if over := len(c.tail) - c.max; over > 0 {
		c.tail = append(c.tail[:0], c.tail[over:]...)
		c.cut = true
	}
	return len(p), nil
}

func (c *capture) close() { c.file.Close() }

// text is the end of the output without secrets.
func (c *capture) text(secrets []secret.Value) string {
	text := strings.ToValidUTF8(string(c.tail), "\uFFFD")
	for _, s := range secrets {
		if len(s.Bytes()) >= minMasked {
			text = strings.ReplaceAll(text, s.Reveal(), "[redacted]")
		}
	}
	return text
}

// minMasked is the length from which a secret is masked in output: shorter ones
// would spoil ordinary words, and protect nothing.
const minMasked = 4

// report is what a validator prints when it is a JSON object, else nil.
func report(text string, cut bool) json.RawMessage {
	text = strings.TrimSpace(text)
	if cut || !strings.HasPrefix(text, "{") || !json.Valid([]byte(text)) {
		return nil
	}
	return json.RawMessage(text)
}

// oneLine puts text on one line.
func oneLine(text string) string {
	return strings.Join(strings.Fields(strings.ToValidUTF8(text, "")), " ")
}
