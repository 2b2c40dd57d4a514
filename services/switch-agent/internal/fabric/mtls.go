// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/rackbus/rackbus/pkg/ssh"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
)

// encryptionOff is the encryption of a manager that speaks plaintext.
const encryptionOff = "disabled"

// Commands of NVOS.
const (
	cmdApply = "nv config apply --assume-yes"
	cmdSave  = "nv config save"
)

func cmdRestoreEncryption(app string) string {
	return "nv action restore cluster apps " + app + " manager encryption"
}

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
		if err := sleep(ctx, c.timing.CertificateSettle); err != nil {
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
	if serr := c.run(ctx, cmdEncrypt(app)); serr != nil {
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
		return nvue.Outcome{Changed: true}, c.run(ctx, cmdRestoreEncryption(app), cmdApply, cmdSave)
	})
}

// notEnabled is what NVOS says of an app while the cluster is off; its settings are
// those of the factory then.
const notEnabled = "cluster is not enabled"

// run executes command lines in their order, in one login.
func (c *Cluster) run(ctx context.Context, lines ...string) error {
	shell, err := c.sw.Shell()
	if err != nil {
		return err
	}
	defer shell.Close()
	for n, line := range lines {
		if n > 0 {
			if err := sleep(ctx, c.timing.CommandGap); err != nil {
				return err
			}
		}
		_, err := shell.Exec(ctx, ssh.Command{Line: line})
		var exit *ssh.ExitError
		if errors.As(err, &exit) && strings.HasPrefix(line, "nv action restore ") && strings.Contains(exit.Output, notEnabled) {
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}
