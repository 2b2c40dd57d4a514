// SPDX-License-Identifier: Apache-2.0

package channel

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"time"
)

// Answers reports whether something serves a port: it takes a connection and,
// asked with a plain HTTP request, says anything or hangs up within limit. A
// gRPC server does the latter. A port that takes connections and stays silent is
// that of a service which hangs. The error is that of a caller who gave up.
func Answers(ctx context.Context, o Options) (bool, error) {
	dial := o.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	bounded, cancel := context.WithTimeout(ctx, o.Limit)
	defer cancel()
	conn, err := dial(bounded, "tcp", o.Address)
	if err != nil {
		return false, context.Cause(ctx)
	}
	defer func() { _ = conn.Close() }()
	// The end of the context wakes both the write and the read.
	stop := context.AfterFunc(bounded, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: "+o.Address+"\r\nConnection: close\r\n\r\n"); err == nil {
		_, err = conn.Read(make([]byte, 1))
	}
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	return !errors.Is(err, os.ErrDeadlineExceeded), nil
}
