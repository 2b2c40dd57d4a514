// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/secret"
)

// Prefix begins the path of every link.
const Prefix = "/evidence/"

// version is part of what is signed, so that a later form of links cannot be taken
// for this one.
const version = "rackbus-evidence-1"

// Members of a link's query.
const (
	queryExpires   = "expires"
	querySignature = "signature"
)

// Faults of links.
var (
	// ErrIncomplete says that a part of the link is missing or unreadable.
	ErrIncomplete = errors.New("the link is not complete")
	// ErrForged says that the link is not as it was given out.
	ErrForged = errors.New("the link is not valid")
	// ErrExpired says that the link was valid once.
	ErrExpired = errors.New("the link has expired")
)

// Link is the right to read one bundle.
type Link struct {
	Job      job.ID
	Filename string
	// Expires is when the right ends, in whole seconds.
	Expires time.Time
}

// Signer signs and verifies links.
type Signer struct{ key secret.Value }

// NewSigner returns a signer with a key of 32 bytes.
func NewSigner(key secret.Value) *Signer { return &Signer{key} }

func (s *Signer) sign(l *Link) []byte {
	mac := hmac.New(sha256.New, s.key.Bytes())
	// No part can hold a line end, so that no two links are signed alike.
	mac.Write([]byte(strings.Join([]string{version, l.Job.String(), l.Filename, strconv.FormatInt(l.Expires.Unix(), 10)}, "\n")))
	return mac.Sum(nil)
}

// URL returns the link below a base such as "https://rackbus.example.net:8803".
func (s *Signer) URL(base string, l Link) string {
	query := url.Values{
		queryExpires:   {strconv.FormatInt(l.Expires.Unix(), 10)},
		querySignature: {base64.RawURLEncoding.EncodeToString(s.sign(&l))},
	}
	return strings.TrimSuffix(base, "/") + Prefix + l.Job.String() + "/" + url.PathEscape(l.Filename) + "?" + query.Encode()
}

// Verify returns the link of a request. Errors wrap ErrIncomplete, ErrForged or
// ErrExpired; only a link that we have given out is told that it has expired.
func (s *Signer) Verify(u *url.URL, now time.Time) (Link, error) {
	id, name, ok := strings.Cut(strings.TrimPrefix(u.Path, Prefix), "/")
	if !ok || !strings.HasPrefix(u.Path, Prefix) || !plainName(name) {
		return Link{}, ErrIncomplete
	}
	l := Link{Filename: name}
	var err error
	if l.Job, err = job.ParseID(id); err != nil || l.Job.String() != id {
		return Link{}, ErrIncomplete
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil || len(query[queryExpires]) != 1 || len(query[querySignature]) != 1 {
		return Link{}, ErrIncomplete
	}
	if len(query) != 2 {
		return Link{}, ErrForged
	}
	text := query.Get(queryExpires)
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || strconv.FormatInt(seconds, 10) != text {
		return Link{}, ErrIncomplete
	}
	l.Expires = time.Unix(seconds, 0)
	given, err := base64.RawURLEncoding.Strict().DecodeString(query.Get(querySignature))
	if err != nil || !hmac.Equal(given, s.sign(&l)) {
		return Link{}, ErrForged
	}
	if !now.Before(l.Expires) {
		return Link{}, ErrExpired
	}
	return l, nil
}

// plainName tells names that need no quoting in paths and headers.
func plainName(name string) bool {
	if name == "" || name == "." || name == ".." {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.'
	})
}
