// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/secret"
	"github.com/rackbus/rackbus/pkg/telemetry"
)

// minMasked is the shortest secret, in bytes, that is taken out of our own texts: a
// shorter one would blot out words that have nothing to do with it.
const minMasked = 4

// masker takes the credentials of a job out of what is told of it. The transports
// do so for their own; this is for devices that echo those of another one, and for
// texts that came another way.
type masker struct {
	mu    sync.Mutex
	forms []secret.Value
	users []string
}

// login hides a user with a password.
func (m *masker) login(c node.Credentials) {
	if c.Password.Empty() {
		return
	}
	m.hide(c.Password.Reveal())
	m.hide(base64.StdEncoding.EncodeToString([]byte(c.User + ":" + c.Password.Reveal())))
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.User != "" && !slices.Contains(m.users, c.User) {
		m.users = append(m.users, c.User)
	}
}

// message hides every text of the secrets of a request.
func (m *masker) message(secrets proto.Message) {
	secrets.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap() && f.MapValue().Kind() == protoreflect.StringKind:
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				m.hide(v.String())
				return true
			})
		case f.IsList() || f.IsMap():
		case f.Kind() == protoreflect.StringKind:
			m.hide(v.String())
		case f.Kind() == protoreflect.BytesKind:
			m.hide(string(v.Bytes()))
		}
		return true
	})
}

// hide keeps copies: the owner may wipe his own before the outcome is written.
func (m *masker) hide(plain string) {
	forms := []string{plain}
	if quoted := inJSON(plain); quoted != plain {
		forms = append(forms, quoted)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, form := range forms {
		known := func(v secret.Value) bool { return string(v.Bytes()) == form }
		if len(form) >= minMasked && !slices.ContainsFunc(m.forms, known) {
			m.forms = append(m.forms, secret.New(form))
		}
	}
	// The longest first: one may contain another.
	slices.SortFunc(m.forms, func(a, b secret.Value) int { return len(b.Bytes()) - len(a.Bytes()) })
}

// text masks the secrets in one of our own texts.
func (m *masker) text(s string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, form := range m.forms {
		s = strings.ReplaceAll(s, form.Reveal(), telemetry.Mask)
	}
	return s
}

// progress masks what is told while a job runs, in which a workflow may repeat what a device says.
func (m *masker) progress(s string) string { return telemetry.RedactText(m.text(s)) }

// device masks a text of a device: also user names, and what is named like a secret.
func (m *masker) device(s string) string {
	s = telemetry.RedactText(m.text(s))
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, user := range m.users {
		s = replaceWord(s, user, telemetry.Mask)
	}
	return s
}

// verdict masks everything that is told of how a job has ended.
func (m *masker) verdict(v verdict) verdict {
	v.description, v.result = m.text(v.description), m.text(v.result)
	if v.failure == nil {
		return v
	}
	f := *v.failure // others may share it
	f.Message = m.text(f.Message)
	if f.Device != nil {
		d := *f.Device
		for _, words := range []*string{&d.Message, &d.Resolution} {
			plain := m.text(*words)
			*words = m.device(*words)
			if plain == *words {
				continue
			}
			// Our texts repeat the device's words.
			f.Message = strings.ReplaceAll(f.Message, plain, *words)
			v.description = strings.ReplaceAll(v.description, plain, *words)
			v.result = strings.ReplaceAll(v.result, inJSON(plain), inJSON(*words))
		}
		f.Device = &d
	}
	v.failure = &f
	return v
}

// findings masks what node diagnostics tell.
func (m *masker) findings(d *job.Diagnostics) *job.Diagnostics {
	if d == nil {
		return nil
	}
	f := *d // others may share it
	f.Summary, f.Advice, f.Collectors = m.text(d.Summary), m.text(d.Advice), slices.Clone(d.Collectors)
	for i := range f.Collectors {
		f.Collectors[i].Message = m.text(f.Collectors[i].Message)
	}
	return &f
}

// told is the text of an error, masked as the failure that it is about to become.
func (m *masker) told(err error) string {
	var fail *FailureError
	if !errors.As(err, &fail) || fail.Failure.Device == nil {
		return err.Error()
	}
	return m.verdict(verdict{failure: fail.Failure, description: err.Error()}).description
}

// inJSON is a text as it stands in a JSON document, without the quotes.
func inJSON(text string) string {
	quoted, err := json.Marshal(text)
	if err != nil {
		return text
	}
	return string(quoted[1 : len(quoted)-1])
}

// replaceWord replaces a word that is not part of a longer one.
func replaceWord(text, word, by string) string {
	var b strings.Builder
	for {
		i := strings.Index(text, word)
		if i < 0 {
			b.WriteString(text)
			return b.String()
		}
		end := i + len(word)
		whole := (i == 0 || !wordByte(text[i-1])) && (end == len(text) || !wordByte(text[end]))
		b.WriteString(text[:i])
		if whole {
			b.WriteString(by)
		} else {
			b.WriteString(word)
		}
		text = text[end:]
	}
}

func wordByte(c byte) bool {
	return c == '_' || c == '-' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}
