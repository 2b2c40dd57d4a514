// SPDX-License-Identifier: Apache-2.0

// Package mtls takes mutual TLS from services of a switch, over SSH: a switch whose
// certificates are broken is not reached in any other way.
package mtls

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rackbus/rackbus/pkg/ssh"
	"github.com/rackbus/rackbus/services/switch-agent/internal/runbook"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security"
)

// Command lines of NVOS, whose changes come into force with the last but one.
const (
	unsetNVUE = "nv unset system api mtls ca-certificate"
	// Releases know one of these, or neither when the gNMI server cannot do mutual
	// TLS at all.
	unsetGNMI         = "nv unset system gnmi-server mtls certificate"
	unsetGNMIFallback = "nv unset system gnmi-server mtls ca-certificate"
	restoreApp        = "nv action restore cluster apps %s manager encryption"
	apply             = "nv config apply --assume-yes"
	save              = "nv config save"
)

// What NVOS says where a failure means that there is nothing to take away.
const (
	clusterOff = "cluster is not enabled"
	noDiff     = "config apply executed with no config diff"
)

// schemaAbsent are the forms of NVOS's refusal to know "mtls" at all.
var schemaAbsent = [...]string{`'mtls' is not one of`, `"mtls" is not one of`}

// DefaultPause is the pause between two command lines.
const DefaultPause = 300 * time.Millisecond

// Shell runs command lines on a switch.
type Shell interface {
	Exec(ctx context.Context, cmd ssh.Command) (ssh.Output, error)
}

// Unset takes mutual TLS from services in their order, applies and saves. It
// returns the lines that were run, fallbacks included. A pause of 0 is DefaultPause.
//
// It may be repeated after a failure or a crash at any point. safe, where there is
// one, says before each line why the course is left there.
func Unset(
	ctx context.Context, shell Shell, services []security.Service, pause time.Duration, safe func(context.Context) error,
) ([]string, error) {
	if pause <= 0 {
		pause = DefaultPause
	}
	u := &unset{shell: shell, pause: pause, safe: safe}
	staged := false
	for _, service := range services {
		absent, err := u.service(ctx, service)
		if err != nil {
			return u.lines, fmt.Errorf("mutual TLS of %s stays, since nothing was applied: %w", service, err)
		}
		staged = staged || !absent
	}
	if !staged && len(services) == 1 {
		// The schema is absent: nothing was staged.
		return u.lines, nil
	}
	if said, err := u.run(ctx, apply); err != nil && !contains(said, noDiff) {
		return u.lines, fmt.Errorf("the removal of mutual TLS was not applied: %w", err)
	}
	if _, err := u.run(ctx, save); err != nil {
		return u.lines, fmt.Errorf("mutual TLS was removed, but would be back after a restart: %w", err)
	}
	return u.lines, nil
}

// unset is one course.
type unset struct {
	shell Shell
	pause time.Duration
	safe  func(context.Context) error
	lines []string
}

// service takes mutual TLS from one service. absent says that it has none to take.
func (u *unset) service(ctx context.Context, s security.Service) (absent bool, err error) {
	switch app := s.App(); {
	case s == security.ServiceNVUE:
		_, err = u.run(ctx, unsetNVUE)
		return false, err
	case app == "":
		return u.gnmi(ctx)
	default:
		said, err := u.run(ctx, fmt.Sprintf(restoreApp, app))
		if err != nil && contains(said, clusterOff) {
			// An app that does not run serves nobody.
			return false, nil
		}
		return false, err
	}
}

func (u *unset) gnmi(ctx context.Context) (absent bool, err error) {
	said, err := u.run(ctx, unsetGNMI)
	if err == nil || !ran(err) {
		return false, err
	}
	also, second := u.run(ctx, unsetGNMIFallback)
	switch {
	case second == nil:
		return false, nil
	case contains(said, schemaAbsent[:]...) && contains(also, schemaAbsent[:]...):
		return true, nil
	default:
		return false, errors.Join(err, second)
	}
}

// run runs one line, after the pause that NVOS needs between two. said is all that
// a failed line wrote.
func (u *unset) run(ctx context.Context, line string) (said string, err error) {
	if len(u.lines) > 0 {
		if err := runbook.Sleep(ctx, u.pause); err != nil {
			return "", err
		}
	}
	if u.safe != nil {
		if err := u.safe(ctx); err != nil {
			return "", err
		}
	}
	u.lines = append(u.lines, line)
	out, err := u.shell.Exec(ctx, ssh.Command{Line: line})
	if !ran(err) {
		return "", err
	}
	return string(out.Stdout) + "\n" + string(out.Stderr), err
}

// ran reports whether an error is that of a line that ran and failed. Anything else
// says nothing about the switch's settings.
func ran(err error) bool {
	var exit *ssh.ExitError
	return errors.As(err, &exit)
}

func contains(text string, parts ...string) bool {
	for _, part := range parts {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}
