// SPDX-License-Identifier: Apache-2.0

package nvswitch

import (
	"bufio"
	"io"
	"strings"

	"github.com/rackbus/rackbus/sim/reqlog"
)

// shell is an interactive session. For a user with an expired password it is the change of the password.
func (n *session) shell(left <-chan struct{}) {
	s := n.sw
	s.lock()
	expired, kind := s.expired[n.user], s.knobs.PasswordChange
	retype := s.knobs.RetypePrompt
	s.mu.Unlock()
	o := s.begin(reqlog.Entry{Protocol: reqlog.SSH, Method: "SHELL", Path: n.user, ReadOnly: !expired})
	status, complete := exitUnanswered, false
	defer func() { o.end(status, complete) }()
	switch {
	case !expired:
		n.say("nvos prompt, no interactive commands here\r\n")
		status, complete = 0, true
	case !n.terminal:
		n.say("Password change required but no terminal is there.\r\n")
		status, complete = 1, true
	case kind == PasswordHang:
		select {
		case <-left:
		case <-s.ctx.Done():
		}
		return
	default:
		if retype == "" {
			retype = "Retype new password: "
		}
		status, complete = n.changePassword(o, kind, retype)
	}
	if status != exitUnanswered {
		o.answering()
		n.exit(status)
	}
}

func (n *session) say(text string) { _, _ = io.WriteString(n.channel, text) }

// changePassword asks for the new password twice.
func (n *session) changePassword(o *operation, kind PasswordChange, retype string) (status int, complete bool) {
	in := bufio.NewReader(n.channel)
	n.say("\r\nYou are required to change your password immediately (administrator enforced).\r\nNew password: ")
	first, err := answer(in)
	if err != nil || kind == PasswordEarlyClose {
		return exitUnanswered, false
	}
	switch kind {
	case PasswordBad:
		n.say("\r\nBAD PASSWORD: The password is too simple\r\n")
		return 1, true
	case PasswordUnchanged:
		n.say("\r\nPassword unchanged\r\n")
		return 1, true
	default:
	}
	n.say("\r\n" + retype)
	second, err := answer(in)
	if err != nil {
		return exitUnanswered, false
	}
	refused := map[PasswordChange]string{
		PasswordTokenError: "passwd: Authentication token manipulation error",
		PasswordSetting:    "passwd: Failure setting password",
	}[kind]
	if first != second || first == "" {
		refused = "Sorry, passwords do not match.\r\npasswd: Authentication token manipulation error"
	}
	if refused != "" {
		n.say("\r\n" + refused + "\r\n")
		return 1, true
	}
	s := n.sw
	s.lock()
	s.setPassword(n.user, first)
	delete(s.expired, n.user)
	s.mu.Unlock()
	o.answering()
	text := map[PasswordChange]string{
		PasswordUpdated:     "passwd: passwd updated successfully",
		PasswordUpdatedAlso: "passwd: password updated successfully",
		PasswordChanged:     "Password changed.",
	}[kind]
	if text != "" {
		n.say("\r\n" + text + "\r\n")
	}
	return 0, true
}

// answer reads a line that ends in CR or LF; nothing is echoed.
func answer(in *bufio.Reader) (string, error) {
	var line strings.Builder
	for {
		b, err := in.ReadByte()
		if err != nil {
			return "", err
		}
		if b == '\r' || b == '\n' {
			return line.String(), nil
		}
		line.WriteByte(b)
	}
}
