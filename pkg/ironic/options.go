// SPDX-License-Identifier: Apache-2.0

package ironic

import (
	"bufio"
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rackbus/rackbus/pkg/seal"
	"github.com/rackbus/rackbus/pkg/secret"
)

// Auth is how the API lets us in.
type Auth string

// The ways in: none at all, a name and a password in every request, or a token of
// Keystone.
const (
	AuthNone      Auth = "none"
	AuthHTTPBasic Auth = "http_basic"
	AuthKeystone  Auth = "keystone"
)

// EnvironmentKind is the kind of the sealed document that holds the credentials.
const EnvironmentKind = "ironic-environment"

// DefaultRequest bounds one request.
const DefaultRequest = 30 * time.Second

// Options say where Ironic is. Endpoint and NodeName are required.
type Options struct {
	// Endpoint is the URL of the bare metal API, with or without /v1.
	Endpoint string
	Auth     Auth
	// Environment returns the credentials, one NAME=value a line, under the names of
	// the OpenStack clients. It is asked for every run; nil where Auth is AuthNone.
	Environment func() (secret.Value, error)
	// Roots are the authorities of the API's and Keystone's certificates; nil are
	// those of the system.
	Roots *x509.CertPool
	// NodeName is the name or UUID of a node in Ironic, with {rack_id}, {node_id} and
	// {bmc_address}.
	NodeName string
	// Request bounds one request; default DefaultRequest.
	Request time.Duration
}

func (o Options) withDefaults() Options {
	if o.Request <= 0 {
		o.Request = DefaultRequest
	}
	if o.Auth == "" {
		o.Auth = AuthNone
	}
	return o
}

// Target is a node as our inventory knows it.
type Target struct {
	RackID, NodeID, BMCAddress string
}

// nameOf is what the node is called in Ironic.
func (o Options) nameOf(t Target) string {
	return strings.NewReplacer("{rack_id}", t.RackID, "{node_id}", t.NodeID, "{bmc_address}", t.BMCAddress).Replace(o.NodeName)
}

// EnvironmentFile reads the credentials from a file sealed for the agent's family.
func EnvironmentFile(path string, opener *seal.Opener) func() (secret.Value, error) {
	return func() (secret.Value, error) {
		text, err := os.ReadFile(path)
		if err != nil {
			return secret.Value{}, fmt.Errorf("credentials of Ironic: %w", err)
		}
		plain, err := seal.OpenDocument(opener, EnvironmentKind, text)
		if err != nil {
			return secret.Value{}, fmt.Errorf("credentials of Ironic: %w", err)
		}
		return plain, nil
	}
}

// Roots reads the authorities in a PEM file; nil for no file.
func Roots(path string) (*x509.CertPool, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("authorities of Ironic: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("authorities of Ironic: %s holds no certificate", path)
	}
	return pool, nil
}

// Variables of the credentials.
const (
	varUser, varPassword   = "OS_USERNAME", "OS_PASSWORD"
	varAuthURL             = "OS_AUTH_URL"
	varProject             = "OS_PROJECT_NAME"
	varProjectID           = "OS_PROJECT_ID"
	varUserDomain          = "OS_USER_DOMAIN_NAME"
	varUserDomainID        = "OS_USER_DOMAIN_ID"
	varProjectDomain       = "OS_PROJECT_DOMAIN_NAME"
	varProjectDomainID     = "OS_PROJECT_DOMAIN_ID"
	varSystemScope         = "OS_SYSTEM_SCOPE"
	varApplicationID       = "OS_APPLICATION_CREDENTIAL_ID"
	varApplicationPassword = "OS_APPLICATION_CREDENTIAL_SECRET"
)

func knownVariables() []string {
	return []string{
		varUser, varPassword, varAuthURL, varProject, varProjectID, varUserDomain, varUserDomainID,
		varProjectDomain, varProjectDomainID, varSystemScope, varApplicationID, varApplicationPassword,
	}
}

// environment is the credentials by variable.
type environment map[string]string

// errEnvironment is wrapped by errors about credentials. None of them shows a value.
var errEnvironment = errors.New("credentials of Ironic")

// CheckEnvironment reports what is wrong with credentials in clear, without telling
// any of them.
func CheckEnvironment(plain []byte) error {
	_, err := parseEnvironment(plain)
	return err
}

func parseEnvironment(plain []byte) (environment, error) {
	out := environment{}
	lines := bufio.NewScanner(bytes.NewReader(plain))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		name = strings.TrimSpace(name)
		switch {
		case !ok:
			return nil, fmt.Errorf("%w: line %d is not NAME=value", errEnvironment, n)
		case !slices.Contains(knownVariables(), name):
			return nil, fmt.Errorf("%w: line %d: the variable is none of %s", errEnvironment, n, strings.Join(knownVariables(), ", "))
		}
		out[name] = unquoted(strings.TrimSpace(value))
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", errEnvironment, err)
	}
	return out, nil
}

func unquoted(value string) string {
	for _, quote := range []string{`"`, `'`} {
		if len(value) >= 2 && strings.HasPrefix(value, quote) && strings.HasSuffix(value, quote) {
			return value[1 : len(value)-1]
		}
	}
	return value
}

// check reports what a way in lacks.
func (e environment) check(auth Auth) error {
	var missing []string
	need := func(name string) {
		if e[name] == "" {
			missing = append(missing, name)
		}
	}
	switch auth {
	case AuthHTTPBasic:
		need(varUser)
		need(varPassword)
	case AuthKeystone:
		need(varAuthURL)
		if e[varApplicationID] != "" {
			need(varApplicationPassword)
			break
		}
		need(varUser)
		need(varPassword)
	case AuthNone:
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: %s not set", errEnvironment, strings.Join(missing, ", "))
	}
	if auth == AuthKeystone {
		if u, err := url.Parse(e[varAuthURL]); err != nil || u.Scheme != "https" || u.Host == "" {
			return fmt.Errorf("%w: %s is no https URL", errEnvironment, varAuthURL)
		}
	}
	return nil
}
