// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
)

// handshakes are credentials that remember why a connection was not made: of that gRPC leaves a text only.
type handshakes struct {
	credentials.TransportCredentials
	last *lastError
}

func rememberHandshakes(c credentials.TransportCredentials) *handshakes {
	return &handshakes{c, &lastError{}}
}

// ClientHandshake implements credentials.TransportCredentials.
func (h *handshakes) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := h.TransportCredentials.ClientHandshake(ctx, authority, raw)
	h.last.set(err)
	if err != nil {
		return conn, info, err
	}
	return &alertConn{conn, h.last}, info, nil
}

// Clone implements credentials.TransportCredentials; the copy remembers with the original.
func (h *handshakes) Clone() credentials.TransportCredentials {
	return &handshakes{h.TransportCredentials.Clone(), h.last}
}

// alertConn notes the alert of a server that does not accept our certificate, which in TLS 1.3 comes after the handshake
// (RFC 8446 section 4.4.2.4).
type alertConn struct {
	net.Conn
	last *lastError
}

func (c *alertConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if isAlert(err) {
		c.last.set(err)
	}
	return n, err
}

// isAlert says that the other end has refused the connection.
func isAlert(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error"
}

type lastError struct {
	mu  sync.Mutex
	err error
}

func (l *lastError) set(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

func (l *lastError) get() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// diagnose tells people what is wrong with a handshake, "" when that is not known.
func (t *target) diagnose(err error) string {
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &unknown):
		return fmt.Sprintf("the server's certificate does not come from the authority in %s\n"+
			"  Give the file with the one that it comes from (--tls-ca), or look whether the address is right.", t.CA)
	case errors.As(err, &host):
		return fmt.Sprintf("the server's certificate is not for this name: %s\n"+
			"  Use a name that it is for as the address, or give one with --tls-server-name.", cell(host.Error()))
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Sprintf("the server's certificate is not valid now: %s\n"+
			"  The server needs a new one, or a clock is wrong.", cell(invalid.Error()))
	case errors.As(err, &record):
		return fmt.Sprintf("nobody speaks TLS there\n  Rackbus serves gRPC at port %s, unless it is configured otherwise.", defaultPort)
	case isAlert(err):
		return fmt.Sprintf("the server does not accept the certificate in %s: %s\n"+
			"  It has to be valid, and to come from an authority that the server trusts.", t.Cert, cell(err.Error()))
	}
	return ""
}

// checkCertificate refuses a certificate that has ended before anybody is asked with it.
func (t *target) checkCertificate(ends time.Time) error {
	if time.Now().Before(ends) {
		return nil
	}
	return usagef("the certificate in %s has ended on %s: get a new one", t.Cert, ends.Local().Format(time.DateTime))
}

// plainReason takes from the text of a connection error what says nothing to people.
func plainReason(text string) string {
	if inner, ok := strings.CutPrefix(text, `connection error: desc = "`); ok {
		text = strings.TrimSuffix(inner, `"`)
	}
	for _, prefix := range []string{"transport: ", "Error while dialing: ", "authentication handshake failed: ", "error reading server preface: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	if text == "name resolver error: produced zero addresses" {
		return "no address is known for this name"
	}
	return text
}
