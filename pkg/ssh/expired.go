// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/rackbus/rackbus/pkg/secret"
	"github.com/rackbus/rackbus/pkg/telemetry"
)

// ErrPasswordRefused says that a host did not take the new password for an expired
// one.
var ErrPasswordRefused = errors.New("the host did not take the new password")

// DefaultPasswordChange bounds the dialogue of ChangeExpiredPassword.
const DefaultPasswordChange = 90 * time.Second

// What hosts say while a password is changed, in lower case.
var (
	passwordPrompts = []string{"new password:"}
	retypePrompts   = []string{"retype new password:", "re-enter new password:", "retype password:"}
	passwordTaken   = []string{"password updated successfully", "passwd updated successfully", "password changed"}
	passwordRefused = []string{
		"authentication token manipulation error", "bad password", "password unchanged", "failure setting password",
	}
)

// ChangeExpiredPassword logs in with an expired password and answers the host's
// questions for a new one on a terminal. A limit of 0 is DefaultPasswordChange.
//
// A host that refuses the password, or ends before it was given twice, gives an
// error that wraps ErrPasswordRefused. One that asks for no password runs into the
// limit. Whether an error came before or after the host took the password is told
// by Error.Sent; the only proof is a login.
func (c *Client) ChangeExpiredPassword(ctx context.Context, password secret.Value, limit time.Duration) error {
	if password.Empty() || bytes.ContainsFunc(password.Bytes(), unicode.IsControl) {
		return fmt.Errorf("%w: the new password cannot be typed on a terminal", ErrInvalidOptions)
	}
	if limit <= 0 {
		limit = DefaultPasswordChange
	}
	d := &passwordDialogue{password: password}
	err := c.Interact(ctx, Terminal{Limit: limit}, d.run)
	var own *Error
	if err == nil || errors.As(err, &own) || errors.Is(err, ErrNotHeld) {
		return err
	}
	return &Error{Op: "change password", Addr: c.addr, Kind: KindRefused, Sent: d.answers > 0, Err: err}
}

// passwordDialogue is the course of one change.
type passwordDialogue struct {
	password secret.Value
	// heard is what the host said since the last answer.
	heard []byte
	// answers is how often the password was given.
	answers int
}

func (d *passwordDialogue) run(terminal io.ReadWriter) error {
	chunk := make([]byte, 1024)
	for {
		n, err := terminal.Read(chunk)
		d.heard = append(d.heard, chunk[:n]...)
		done, derr := d.react(terminal)
		switch {
		case derr != nil || done:
			return derr
		case errors.Is(err, io.EOF) && d.answers == 2:
			// Hosts close the session once the password is changed.
			return nil
		case errors.Is(err, io.EOF):
			return fmt.Errorf("%w: it ended the session before the password was given twice%s", ErrPasswordRefused, d.transcript())
		case err != nil:
			return err
		}
	}
}

// react answers what was heard; done says that the host took the password.
func (d *passwordDialogue) react(terminal io.Writer) (done bool, err error) {
	heard := strings.ToLower(string(d.heard))
	contains := func(text string) bool { return strings.Contains(heard, text) }
	switch {
	case d.answers > 0 && slices.ContainsFunc(passwordRefused, contains):
		return false, fmt.Errorf("%w%s", ErrPasswordRefused, d.transcript())
	case d.answers == 2:
		return slices.ContainsFunc(passwordTaken, contains), nil
	case d.answers == 0 && slices.ContainsFunc(passwordPrompts, contains),
		d.answers == 1 && slices.ContainsFunc(retypePrompts, contains):
		return false, d.answer(terminal)
	default:
		return false, nil
	}
}

func (d *passwordDialogue) answer(terminal io.Writer) error {
	line := append(slices.Clone(d.password.Bytes()), '\r')
	defer clear(line)
	d.heard = nil
	d.answers++
	_, err := terminal.Write(line)
	return err
}

// transcript is the end of what the host said. Some echo what is typed.
func (d *passwordDialogue) transcript() string {
	text := oneLine(strings.ReplaceAll(string(d.heard), d.password.Reveal(), telemetry.Mask))
	if text == "" {
		return ""
	}
	return ": " + text
}
