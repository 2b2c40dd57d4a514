// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
)

// Login methods.
const (
	methodKey         = "publickey"
	methodPassword    = "password"
	methodInteractive = "keyboard-interactive"
)

// authenticator chooses the login methods of one handshake. The password is
// handed out once: a second method with the same wrong password would burn
// another try of a host that locks accounts.
type authenticator struct {
	login  Login
	signer ssh.Signer
	// broken returns the error of the connection, if it has one: the library asks
	// for the next method also when the last one ended with the connection.
	broken func() error

	triedKey, triedPassword bool
	// refused is why the server's questions were not answered.
	refused error
}

func newAuthenticator(login Login, broken func() error) (*authenticator, error) {
	a := &authenticator{login: login, broken: broken}
	if login.PrivateKey.Empty() {
		return a, nil
	}
	var err error
	if a.signer, err = ssh.ParsePrivateKey(login.PrivateKey.Bytes()); err != nil {
		// The parser's errors could show content.
		return nil, fmt.Errorf("%w: the private key is not readable", ErrInvalidOptions)
	}
	return a, nil
}

// next is asked by the handshake after every attempt.
func (a *authenticator) next(c *ssh.ClientAuthContext) (ssh.AuthMethod, error) {
	if err := a.broken(); err != nil {
		return nil, err
	}
	if a.refused != nil {
		return nil, a.refused
	}
	offers := func(method string) bool { return slices.Contains(c.AllowedMethods, method) }
	switch {
	case a.signer != nil && !a.triedKey && offers(methodKey):
		a.triedKey = true
		return ssh.PublicKeys(a.signer), nil
	case a.login.Password.Empty() || a.triedPassword:
	case offers(methodPassword):
		a.triedPassword = true
		return ssh.Password(a.login.Password.Reveal()), nil
	case offers(methodInteractive):
		a.triedPassword = true
		return ssh.KeyboardInteractive(a.answers()), nil
	}
	if a.tried() {
		return nil, fmt.Errorf("%w for user %s", ErrCredentials, a.login.User)
	}
	return nil, fmt.Errorf("%w: the server offers %s", ErrNoLoginMethod, strings.Join(c.AllowedMethods, ", "))
}

func (a *authenticator) tried() bool { return a.triedKey || a.triedPassword }

// answers gives the password to the one question whose answer is not shown. A
// server that asks again did not like it, or wants something else.
func (a *authenticator) answers() ssh.KeyboardInteractiveChallenge {
	asked := false
	return func(_, _ string, questions []string, echos []bool) ([]string, error) {
		if len(questions) == 0 {
			return nil, nil
		}
		if asked || len(questions) != 1 || echos[0] {
			a.refused = fmt.Errorf("%w for user %s: the server asks for more than the password", ErrCredentials, a.login.User)
			return nil, a.refused
		}
		asked = true
		return []string{a.login.Password.Reveal()}, nil
	}
}
