// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/rackbus/rackbus/pkg/ssh"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
	"github.com/rackbus/rackbus/services/switch-agent/internal/runbook"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security/mtls"
)

// encryptionOff is the encryption of a manager that speaks plaintext.
const encryptionOff = "disabled"

// cmdEncrypt is a command of NVOS.
func cmdEncrypt(app string) string {
	return "nv action update cluster apps " + app + " manager encryption " + nvue.MTLS
}

// Bind gives an app the certificate it serves and the CA of the clients it admits,
// and lets it demand client certificates. What is bound already stays.
func (c *Cluster) Bind(ctx context.Context, app, certificate, ca string) error {
	if _, err := c.SetState(ctx, true); err != nil {
		return err
	}
	if _, err := c.SetGRPC(ctx, app, true); err != nil {
		return err
	}
	for _, b := range []struct {
		read   func(context.Context, string) (string, error)
		wanted string
		set    nvue.Action
	}{
		{c.api().ManagerCertificate, certificate, nvue.SetManagerCertificate(app, certificate)},
		{c.api().ManagerClientCA, ca, nvue.SetManagerClientCA(app, ca)},
	} {
		now, err := b.read(ctx, app)
		if err != nil && interrupted(ctx, err) {
			return err
		}
		if err == nil && now == b.wanted {
			continue
		}
		if _, err := c.api().RunAction(ctx, b.set); err != nil {
			return err
		}
		if err := runbook.Sleep(ctx, c.timing.CertificateSettle); err != nil {
			return err
		}
	}
	if err := c.encrypt(ctx, app); err != nil {
		return err
	}
	return c.VerifyBinding(ctx, app, certificate, ca)
}

// encrypt makes an app demand client certificates. The switch may fail to say how
// that ended, since the app comes up anew; the command line then does it again.
func (c *Cluster) encrypt(ctx context.Context, app string) error {
	now, err := c.api().ManagerEncryption(ctx, app)
	switch {
	case err != nil && interrupted(ctx, err):
		return err
	case err == nil && now == nvue.MTLS:
		return nil
	}
	_, err = c.api().RunAction(ctx, nvue.SetManagerEncryption(app, nvue.MTLS))
	if err == nil || interrupted(ctx, err) || !overwhelmed(err) {
		return err
	}
	serr := c.shell(func(shell mtls.Shell) error {
		_, err := shell.Exec(ctx, ssh.Command{Line: cmdEncrypt(app)})
		return err
	})
	if serr != nil {
		return fmt.Errorf("%w; and over ssh: %w", err, serr)
	}
	return nil
}

// overwhelmed reports failures that say nothing about the request itself: of the
// transport, of the login, or of the server.
func overwhelmed(err error) bool {
	var e *nvue.Error
	if !errors.As(err, &e) {
		return false
	}
	switch {
	case e.Code == nvue.ErrActionFailed, e.Code == nvue.ErrInvalidArgument, e.Code == nvue.ErrFailedPrecondition:
		return false
	case e.Status == 0:
		return nvue.Retryable(err)
	default:
		return e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden ||
			e.Status == http.StatusRequestTimeout || e.Status >= http.StatusInternalServerError
	}
}

// VerifyBinding reads back what Bind has set.
func (c *Cluster) VerifyBinding(ctx context.Context, app, certificate, ca string) error {
	for _, b := range []struct {
		what, wanted string
		read         func(context.Context, string) (string, error)
	}{
		{"certificate", certificate, c.api().ManagerCertificate},
		{"ca-certificate", ca, c.api().ManagerClientCA},
		{"encryption", nvue.MTLS, c.api().ManagerEncryption},
	} {
		now, err := b.read(ctx, app)
		if err != nil {
			return err
		}
		if now != b.wanted {
			return fmt.Errorf("%w: the %s of %s is %q and not %q", ErrNotConverged, b.what, app, now, b.wanted)
		}
	}
	return nil
}

// Unbind lets an app serve plaintext again. One that does is left alone.
func (c *Cluster) Unbind(ctx context.Context, app string) (changed bool, err error) {
	service := security.ServiceOf(app)
	if service == "" {
		return false, fmt.Errorf("%w: %s has no mutual TLS", ErrInvalid, app)
	}
	now, err := c.api().App(ctx, app)
	if err != nil || now.ManagerEncryption == encryptionOff {
		return false, err
	}
	cluster, err := c.api().Cluster(ctx)
	if err != nil {
		return false, err
	}
	if cluster.Enabled() {
		if _, _, err := c.awaitRunning(ctx, app); err != nil {
			return false, err
		}
	}
	return true, c.edit(ctx, func() (nvue.Outcome, error) {
		return nvue.Outcome{Changed: true}, c.shell(func(shell mtls.Shell) error {
			_, err := mtls.Unset(ctx, shell, []security.Service{service}, c.timing.CommandGap, nil)
			return err
		})
	})
}

// notEnabled is what NVOS says of an app while the cluster is off; its settings are
// those of the factory then.
const notEnabled = "cluster is not enabled"

// shell runs something in one login.
func (c *Cluster) shell(run func(mtls.Shell) error) error {
	shell, err := c.sw.Shell()
	if err != nil {
		return err
	}
	defer shell.Close()
	return run(shell)
}
