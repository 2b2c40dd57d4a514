// SPDX-License-Identifier: Apache-2.0

package api

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/rackbus/rackbus/pkg/access"
	"github.com/rackbus/rackbus/pkg/admission"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/firmware/artifact"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/seal"
	"github.com/rackbus/rackbus/pkg/secret"
	"github.com/rackbus/rackbus/pkg/switchtls"
	"github.com/rackbus/rackbus/pkg/telemetry"
)

// ErrInvalidOptions is wrapped by every error about Options.
var ErrInvalidOptions = errors.New("api: invalid options")

// Options configure a Server.
type Options struct {
	// Conn is the bus. The server does not close it.
	Conn *bus.Conn
	// Sealer seals credentials for the agents.
	Sealer *seal.Sealer

	// Listener takes the connections; when nil the server listens on Addr.
	Listener net.Listener
	Addr     string
	// TLS configures the listener. Without it Plaintext must be set, which the
	// caller allows only when both switches for it are on.
	TLS       *tls.Config
	Plaintext bool

	// FirmwareDir holds the firmware files that requests may name.
	FirmwareDir string
	// Catalog is the firmware catalogue; default is that on the bus.
	Catalog FirmwareCatalog
	// ArtifactPolicy says from where the files of firmware objects may be fetched, so
	// that what a download would refuse is refused at once; nil leaves it to the
	// download.
	ArtifactPolicy *artifact.Policy
	// SwitchTargets limits which addresses switches may have where the caller gives
	// them.
	SwitchTargets node.TargetPolicy
	// SwitchTLS finds the certificates of switch domains; default is one that has none.
	SwitchTLS *switchtls.Store
	// Validator says that the compute agents have a validator.
	Validator bool
	// Profiles are the names of the configured expected-inventory profiles.
	Profiles []string
	// Admission tunes the admission of jobs; Conn, OnConflict and Logger are set
	// by the server.
	Admission admission.Options

	// BatchParallelism is how many nodes of one batch are asked at a time;
	// default 64.
	BatchParallelism int
	// MaxRequestBytes bounds a request; default 17 MiB, since clients send
	// manifests of up to 16 MiB inline.
	MaxRequestBytes int
	// MaxAnswerBytes bounds an answer, whose job results are cut to fit; default
	// 3.5 MiB, since clients decode at most 4 MiB.
	MaxAnswerBytes int
	// KeepaliveMinTime is the least pause between pings of a client; default 5 s,
	// since clients ping every 10 s, also without a call.
	KeepaliveMinTime time.Duration
	// PlanLife is how long a checked firmware plan can be applied; default 30 days.
	PlanLife time.Duration
	// Reflection offers gRPC server reflection.
	Reflection bool
	// DrainTimeout bounds the end of running calls after Run's context ended;
	// default 30 s.
	DrainTimeout time.Duration
	Timing       Timing

	// LinkKey signs links to evidence; without it there are none. All replicas need
	// the same one.
	LinkKey secret.Value
	// LinkTTL is how long such a link is valid; default 10 min.
	LinkTTL time.Duration
	// EvidenceBaseURL is where clients reach the HTTP listener that serves the links,
	// for example https://rackbus.example.net:8803; without it there are none.
	EvidenceBaseURL string

	// HTTP is the listener for browsers; nil for none.
	HTTP *HTTPOptions

	// Access says who may do what; default is that everybody is an operator.
	Access *access.Policy

	// Registerer takes the metrics; default is a registry of its own.
	Registerer prometheus.Registerer
	// Tracer makes the spans of calls; nil makes none.
	Tracer trace.TracerProvider
	// Readiness receives the checks of the server; may be nil.
	Readiness *telemetry.Readiness
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

// Timing is every wait and limit of the server.
type Timing struct {
	// BrokerLimit is how long a call goes on without an answer of the broker
	// before it is UNAVAILABLE. Losing a stream leader stops writes for some
	// seconds, and clients give up after 10 s; default 8 s.
	BrokerLimit time.Duration
	// BrokerPause is the pause before the broker is asked again; default 200 ms.
	BrokerPause time.Duration
	// PowerLimit bounds a power operation or read whose caller sets no deadline;
	// default 30 s.
	PowerLimit time.Duration
	// InventoryLimit does so for a firmware inventory; default 120 s.
	InventoryLimit time.Duration
	// DeviceInfoLimitCompute and DeviceInfoLimitSwitch do so for device
	// information; defaults 300 s and 90 s.
	DeviceInfoLimitCompute time.Duration
	DeviceInfoLimitSwitch  time.Duration
	// SwitchReadLimit does so for a read from a switch, which is greeted first, with 30 s
	// for each request; default 90 s.
	SwitchReadLimit time.Duration
	// PushLimit does so for a file that is copied to a switch, which takes up to 30
	// minutes after the login; default 35 min.
	PushLimit time.Duration
	// FabricStatusLimit does so for the status of a fabric: up to five requests one after
	// the other; default 3 min.
	FabricStatusLimit time.Duration
	// FabricRoleLimit bounds the look, before certificates are installed, at which switch
	// of a rack runs the fabric, which takes half of the caller's time at most; default 5 s.
	FabricRoleLimit time.Duration
	// FabricStateLimit does so for a change of a fabric's state: a revision of 60 s and
	// 90 s until it shows, and what comes before; default 5 min.
	FabricStateLimit time.Duration
	// FabricConfigureLimit does so for the configuration of one fabric manager, which
	// may restart it twice and undoes what failed; default 25 min.
	FabricConfigureLimit time.Duration
	// AttestationLimit does so for the evidence of all switches of a request; default
	// 15 min.
	AttestationLimit time.Duration
	// AnswerMargin is how long before a caller's deadline an answer about a switch is
	// sent, and how long before that the agent has to be done; default 1 s.
	AnswerMargin time.Duration
	// LockMargin is how long a node stays locked past the deadline of a
	// synchronous operation whose outcome is unknown; default 5 s.
	LockMargin time.Duration
	// CancelWait is how long CancelJob waits for the request to show in the
	// record; default 1 s. CancelPoll is the pause between looks; default 20 ms.
	CancelWait time.Duration
	CancelPoll time.Duration
	// HealthInterval is the pause between looks at the readiness; default 1 s.
	HealthInterval time.Duration
	// WatchRetry is the pause before a broken watch of the records is opened
	// again; default 500 ms.
	WatchRetry time.Duration
	// DrainGrace is how long the server goes on as usual, but for refusing new
	// jobs, before it tells clients to go; default 1 s.
	DrainGrace time.Duration
	// AuditLimit is how long the answer to a call waits for its audit record;
	// default 1 s. After it the record is tried for AuditPatience more while the
	// answer goes out; default 30 s.
	AuditLimit    time.Duration
	AuditPatience time.Duration
}

func (o Options) withDefaults() (Options, error) {
	switch {
	case o.Conn == nil:
		return o, fmt.Errorf("%w: no bus connection", ErrInvalidOptions)
	case o.Sealer == nil:
		return o, fmt.Errorf("%w: no sealer", ErrInvalidOptions)
	case o.TLS == nil && !o.Plaintext:
		return o, fmt.Errorf("%w: neither TLS nor plaintext is set", ErrInvalidOptions)
	case o.TLS != nil && o.Plaintext:
		return o, fmt.Errorf("%w: both TLS and plaintext are set", ErrInvalidOptions)
	case o.HTTP != nil && (o.HTTP.TLS == nil) != o.Plaintext:
		return o, fmt.Errorf("%w: the HTTP listener must have TLS if and only if gRPC has", ErrInvalidOptions)
	case o.Listener == nil && o.Addr == "":
		return o, fmt.Errorf("%w: no listener and no address", ErrInvalidOptions)
	case o.FirmwareDir == "":
		return o, fmt.Errorf("%w: no firmware directory", ErrInvalidOptions)
	}
	for value, standard := range map[*int]int{
		&o.BatchParallelism: 64, &o.MaxRequestBytes: 17 << 20, &o.MaxAnswerBytes: 7 << 19,
	} {
		if *value <= 0 {
			*value = standard
		}
	}
	for value, standard := range map[*time.Duration]time.Duration{
		&o.KeepaliveMinTime:              5 * time.Second,
		&o.DrainTimeout:                  30 * time.Second,
		&o.PlanLife:                      30 * 24 * time.Hour,
		&o.LinkTTL:                       10 * time.Minute,
		&o.Timing.BrokerLimit:            8 * time.Second,
		&o.Timing.BrokerPause:            200 * time.Millisecond,
		&o.Timing.PowerLimit:             30 * time.Second,
		&o.Timing.InventoryLimit:         2 * time.Minute,
		&o.Timing.DeviceInfoLimitCompute: 5 * time.Minute,
		&o.Timing.DeviceInfoLimitSwitch:  90 * time.Second,
		&o.Timing.SwitchReadLimit:        90 * time.Second,
		&o.Timing.PushLimit:              35 * time.Minute,
		&o.Timing.FabricStatusLimit:      3 * time.Minute,
		&o.Timing.FabricRoleLimit:        5 * time.Second,
		&o.Timing.FabricStateLimit:       5 * time.Minute,
		&o.Timing.FabricConfigureLimit:   25 * time.Minute,
		&o.Timing.AttestationLimit:       15 * time.Minute,
		&o.Timing.AnswerMargin:           time.Second,
		&o.Timing.LockMargin:             5 * time.Second,
		&o.Timing.CancelWait:             time.Second,
		&o.Timing.CancelPoll:             20 * time.Millisecond,
		&o.Timing.HealthInterval:         time.Second,
		&o.Timing.WatchRetry:             500 * time.Millisecond,
		&o.Timing.DrainGrace:             time.Second,
		&o.Timing.AuditLimit:             time.Second,
		&o.Timing.AuditPatience:          30 * time.Second,
	} {
		if *value <= 0 {
			*value = standard
		}
	}
	if o.SwitchTLS == nil {
		o.SwitchTLS = switchtls.NewStore(switchtls.Settings{})
	}
	if o.Access == nil {
		o.Access = access.Open(access.Operator)
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	if o.Readiness == nil {
		o.Readiness = &telemetry.Readiness{}
	}
	return o, nil
}
