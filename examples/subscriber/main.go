// SPDX-License-Identifier: Apache-2.0

// Subscriber prints every change of a job's state, one JSON line each, in order
// per job and once. It shows how another system follows Rackbus: a durable
// consumer of the stream RACKBUS_EVENTS, an acknowledgement after the work is
// done, and the event's number against repetitions.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// stream is where Rackbus publishes.
const stream = "RACKBUS_EVENTS"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "subscriber:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("subscriber", flag.ContinueOnError)
	server := flags.String("server", "nats://127.0.0.1:4222", "NATS servers, separated by commas")
	consumer := flags.String("consumer", "site", "durable consumer of "+stream+", as an operator has made it")
	ca := flags.String("ca", "", "roots (PEM) of the servers' certificates")
	cert := flags.String("cert", "", "own certificate (PEM)")
	key := flags.String("key", "", "key (PEM) of the certificate")
	seed := flags.String("nkey", "", "file with the NKEY seed of the user subscriber")
	tlsFirst := flags.Bool("tls-first", false, "start TLS before the server speaks")
	if err := flags.Parse(args); err != nil {
		return err //nolint:wrapcheck // the flag set has said it
	}
	options := []nats.Option{
		nats.Name("subscriber"), nats.MaxReconnects(-1),
		// The only inbox that the user subscriber may read.
		nats.CustomInboxPrefix("_INBOX_subscriber"),
	}
	if *ca != "" {
		options = append(options, nats.RootCAs(*ca))
	}
	if *cert != "" {
		options = append(options, nats.ClientCert(*cert, *key))
	}
	if *tlsFirst {
		options = append(options, nats.TLSHandshakeFirst())
	}
	if *seed != "" {
		user, err := nats.NkeyOptionFromSeed(*seed)
		if err != nil {
			return fmt.Errorf("read the NKEY seed: %w", err)
		}
		options = append(options, user)
	}
	nc, err := nats.Connect(*server, options...)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", *server, err)
	}
	defer nc.Close()
	return follow(ctx, nc, *consumer, out)
}

// event is the part of a job event that this program looks at;
// docs/events/job-event.v1.schema.json has all of it.
type event struct {
	JobID string `json:"job_id"`
	N     uint64 `json:"n"`
}

// errGap says that the stream was trimmed, or the consumer changed, in between.
var errGap = errors.New("events are missing")

// follow handles the events of a durable consumer until ctx ends. What it had
// not acknowledged by then comes again at the next start.
func follow(ctx context.Context, nc *nats.Conn, consumer string, out io.Writer) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("use JetStream: %w", err)
	}
	durable, err := js.Consumer(ctx, stream, consumer)
	if err != nil {
		return fmt.Errorf("consumer %s of %s: %w", consumer, stream, err)
	}
	messages, err := durable.Messages()
	if err != nil {
		return fmt.Errorf("read %s: %w", stream, err)
	}
	context.AfterFunc(ctx, messages.Stop)
	// JetStream delivers again what it has no acknowledgement of. A system with a
	// database keeps this table there, in the transaction that handles the event.
	last := map[string]uint64{}
	for {
		m, err := messages.Next()
		switch {
		case errors.Is(err, jetstream.ErrMsgIteratorClosed):
			return nil
		case err != nil:
			return fmt.Errorf("read %s: %w", stream, err)
		}
		var e event
		if err := json.Unmarshal(m.Data(), &e); err != nil {
			return fmt.Errorf("read %s: %w", m.Subject(), err)
		}
		switch seen := last[e.JobID]; {
		case e.N <= seen: // again
		case seen > 0 && e.N > seen+1:
			return fmt.Errorf("%w: job %s went from event %d to %d", errGap, e.JobID, seen, e.N)
		default:
			if _, err := fmt.Fprintf(out, "%s\n", m.Data()); err != nil {
				return fmt.Errorf("write event: %w", err)
			}
			last[e.JobID] = e.N
		}
		if err := m.Ack(); err != nil {
			return fmt.Errorf("acknowledge %s: %w", m.Subject(), err)
		}
	}
}
