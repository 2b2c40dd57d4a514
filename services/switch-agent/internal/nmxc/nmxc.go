// SPDX-License-Identifier: Apache-2.0

// Package nmxc talks to the fabric controller of a switch, the app
// nmx-controller, over its gRPC service nmx_c.NMX_Controller.
//
// Open connects and says hello, which the controller expects before anything
// else. A Client is one connection: when that is lost its calls fail, and a new
// one has to be opened.
//
// Reads and greetings are sent as they are, a change only when the Guard lets it
// through. Every failure is an *Error, or a *channel.Error when there was no
// connection.
package nmxc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"

	"github.com/rackbus/rackbus/proto/nmxc"
	"github.com/rackbus/rackbus/services/switch-agent/internal/channel"
)

// DefaultGateway is the name under which we greet the controller, unless
// nmx_gateway_id names another.
const DefaultGateway = "rack-manager-grpc-client"

// Timing holds the limits of a Client. Zero fields take their defaults.
type Timing struct {
	// Connect bounds TCP, TLS and HTTP/2 together; default 30 s.
	Connect time.Duration
	// Call bounds every call; default 30 s.
	Call time.Duration
	// Probe bounds a look at the port; default 10 s.
	Probe time.Duration
}

func (t Timing) withDefaults() Timing {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{{&t.Connect, 30 * time.Second}, {&t.Call, 30 * time.Second}, {&t.Probe, 10 * time.Second}} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	return t
}

// Guard decides whether this process may still change the switch.
type Guard interface {
	// Check returns nil while the node is held. It is called right before every
	// change.
	Check() error
	// Context derives the context a change runs under.
	Context(ctx context.Context) (context.Context, context.CancelFunc)
}

// Options say where the controller is and how to talk to it.
type Options struct {
	// Address is IP address and port.
	Address  string
	Security channel.Security
	// Gateway defaults to DefaultGateway.
	Gateway string
	// Guard is asked before every change. Without one the client only reads.
	Guard  Guard
	Timing Timing
	// Dial replaces the TCP dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

func (o Options) withDefaults() Options {
	o.Timing = o.Timing.withDefaults()
	if o.Gateway == "" {
		o.Gateway = DefaultGateway
	}
	if o.Guard == nil {
		o.Guard = readOnly{}
	}
	return o
}

// readOnly is the guard of clients that were given none.
type readOnly struct{}

func (readOnly) Check() error { return errors.New("this client may only read") }

func (readOnly) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

// Client is one connection to a controller that was greeted. It may be used by
// several goroutines.
type Client struct {
	conn    *grpc.ClientConn
	api     nmxc.NMX_ControllerClient
	options Options
	greeted Identity
}

// Identity is what a controller says of itself.
type Identity struct {
	DomainUUID, AppUUID, Version string
}

// Open connects to a controller and greets it, in one attempt each.
func Open(ctx context.Context, o Options) (*Client, error) {
	o = o.withDefaults()
	conn, err := channel.Open(ctx, channel.Options{Address: o.Address, Security: o.Security, Limit: o.Timing.Connect, Dial: o.Dial})
	if err != nil {
		return nil, err
	}
	c := &Client{conn: conn, api: nmxc.NewNMX_ControllerClient(conn), options: o}
	if err := c.hello(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Answers reports whether something serves the controller's port.
func Answers(ctx context.Context, o Options) (bool, error) {
	o = o.withDefaults()
	return channel.Answers(ctx, channel.Options{Address: o.Address, Limit: o.Timing.Probe, Dial: o.Dial})
}

// Close ends the connection.
func (c *Client) Close() { _ = c.conn.Close() }

// Identity is what the controller said of itself when it was greeted.
func (c *Client) Identity() Identity { return c.greeted }

func (c *Client) hello(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timing.Call)
	defer cancel()
	answer, err := c.api.Hello(ctx, &nmxc.NmxHelloRequest{
		GatewayId:    c.options.Gateway,
		MajorVersion: nmxc.ProtoMsgMajorVersion_PROTO_MSG_MAJOR_VERSION,
		MinorVersion: nmxc.ProtoMsgMinorVersion_PROTO_MSG_MINOR_VERSION,
	})
	if err := judge("greet the controller", answer.GetServerHeader(), err); err != nil {
		return err
	}
	h := answer.GetServerHeader()
	c.greeted = Identity{DomainUUID: h.GetDomainUuid(), AppUUID: h.GetAppUuid(), Version: h.GetAppVer()}
	return nil
}

// Value reads one entry of the static configuration; found is false when the
// controller has none.
func (c *Client) Value(ctx context.Context, file, key string) (value string, found bool, err error) {
	keys := &nmxc.NmxConfigKeys{ConfigKey: []*nmxc.NmxConfigKey{{ConfigFileName: file, Key: key}}}
	answer, err := c.get(ctx, &nmxc.NmxGetStaticConfigRequest{ConfigKeys: keys})
	if errors.Is(err, ReturnNotConfigured) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	// Some controllers give values beside the configuration and not in it.
	for _, values := range []*nmxc.NmxConfigKeyVals{answer.GetStaticConfig().GetConfigKeyVals(), answer.GetConfigKeyVals()} {
		for _, v := range values.GetConfigKeyVal() {
			if v.GetConfigFileName() == file && v.GetKey() == key {
				return v.GetValue(), true, nil
			}
		}
	}
	return "", false, nil
}

// Files reads whole files of the static configuration, in one call.
func (c *Client) Files(ctx context.Context, names ...string) (Config, error) {
	files := &nmxc.NmxConfigFiles{}
	for _, name := range names {
		files.ConfigFile = append(files.ConfigFile, &nmxc.NmxConfigFile{ConfigFileName: name})
	}
	answer, err := c.get(ctx, &nmxc.NmxGetStaticConfigRequest{ConfigFiles: files})
	if err != nil {
		return nil, err
	}
	out := Config{}
	for _, f := range answer.GetStaticConfig().GetConfigFileContents().GetConfigFileContent() {
		out.add(f.GetConfigFileName(), f.GetConfigFileContent())
	}
	return out, nil
}

func (c *Client) get(ctx context.Context, r *nmxc.NmxGetStaticConfigRequest) (*nmxc.NmxGetStaticConfigResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timing.Call)
	defer cancel()
	r.GatewayId = c.options.Gateway
	answer, err := c.api.GetStaticConfig(ctx, r)
	return answer, judge("read static configuration", answer.GetServerHeader(), err)
}

// Set changes one entry of the static configuration.
func (c *Client) Set(ctx context.Context, file, key, value string) error {
	const op = "change static configuration"
	if err := c.options.Guard.Check(); err != nil {
		return fmt.Errorf("%s: %w: %w", op, ErrNotHeld, err)
	}
	held, release := c.options.Guard.Context(ctx)
	defer release()
	bounded, cancel := context.WithTimeout(held, c.options.Timing.Call)
	defer cancel()
	answer, err := c.api.SetStaticConfig(bounded, &nmxc.NmxSetStaticConfigRequest{
		GatewayId: c.options.Gateway,
		StaticConfig: &nmxc.NmxStaticConfig{
			Context:       &nmxc.NmxContext{},
			ConfigKeyVals: &nmxc.NmxConfigKeyVals{ConfigKeyVal: []*nmxc.NmxConfigKeyVal{{ConfigFileName: file, Key: key, Value: value}}},
		},
	})
	if err != nil && held.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("%s: %w: %w", op, ErrNotHeld, context.Cause(held))
	}
	return judge(op, answer.GetServerHeader(), err)
}
