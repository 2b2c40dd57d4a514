// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/switchtls"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security"
)

// prepare is what comes before anything is changed: the connection to the switch,
// and the proof that we will still be let in afterwards.
func (w *work) prepare(ctx context.Context) error {
	if expired := w.material.Leaf().NotAfter; !time.Now().Before(expired) {
		return agent.Fail(job.FailureCertificateMaterial, phasePrepare,
			"the certificate to be installed has expired at "+expired.UTC().Format(time.RFC3339), nil)
	}
	if w.wants(security.ServiceNVUE) || w.cmd.GetTestHello() {
		if err := w.prove(ctx); err != nil {
			return agent.Fail(failureOf(err), phasePrepare, err.Error(), err)
		}
	}
	weakened, err := w.connect(ctx)
	if err != nil {
		return security.Failure(phasePrepare, "", err)
	}
	if weakened && !w.state.Weakened {
		w.state.Weakened = true
		w.state.Details.Set(stageDirectory, map[string]any{"connection": "unverified until the certificate is bound"})
	}
	return w.t.Set(w.state)
}

// own is our own material as it is now. It must not be replaced while the job runs:
// the proof would be worth nothing.
func (w *work) own() (*switchtls.Material, error) {
	own, err := w.opts.Switches.TLS().Client(w.cmd.GetDomain())
	if err != nil {
		return nil, err
	}
	if now := own.Fingerprint().String(); w.state.Own == "" {
		w.state.Own = now
	} else if w.state.Own != now {
		return nil, errors.New("our own TLS material towards the switch was replaced while the job ran; start it again")
	}
	return own, nil
}

// prove shakes hands with the material to be installed, in memory: a switch that
// cannot be reached afterwards could only be repaired over SSH.
func (w *work) prove(ctx context.Context) error {
	own, err := w.own()
	if err != nil {
		return err
	}
	client, err := own.ClientConfig(w.sw.ServerName())
	if err != nil {
		return err
	}
	installed, err := w.material.ClientConfig(w.sw.ServerName())
	if err != nil {
		return err
	}
	server := &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: installed.Certificates,
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: installed.RootCAs, SessionTicketsDisabled: true,
	}
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	refused := make(chan error, 1)
	go func() {
		err := tls.Server(theirs, server).HandshakeContext(ctx)
		_ = theirs.Close() // so that the other end does not wait
		refused <- err
	}()
	conn := tls.Client(ours, client)
	accepted := conn.HandshakeContext(ctx)
	if accepted == nil {
		// Under TLS 1.3 a refusal of our certificate comes behind the handshake.
		_, _ = conn.Read(make([]byte, 1))
	}
	_ = ours.Close()
	switch err := <-refused; {
	case accepted != nil:
		return fmt.Errorf("we would not accept the certificate to be installed: %w", accepted)
	case err != nil:
		return fmt.Errorf("the switch would not accept our own certificate: %w", err)
	default:
		return nil
	}
}

// connect brings up the NVUE connection, unverified where the switch has no
// certificate yet. An interrupted job may meet a switch in the middle of the change.
func (w *work) connect(ctx context.Context) (weakened bool, err error) {
	tries := 1
	if w.t.Epoch() > 1 {
		tries = w.timing.HelloTries
	}
	for n := 1; ; n++ {
		weakened, err = w.sw.NVUE.Bootstrap(ctx, w.opts.Switches.TLS(), w.cmd.GetDomain())
		if err == nil || n >= tries || ctx.Err() != nil || !nvue.Retryable(err) {
			return weakened, err
		}
		if err := w.t.Sleep(ctx, w.timing.HelloPause); err != nil {
			return false, err
		}
	}
}
