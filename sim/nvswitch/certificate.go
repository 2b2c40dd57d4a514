// SPDX-License-Identifier: Apache-2.0

package nvswitch

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"
)

// authority is an imported CA certificate.
type authority struct {
	pool *x509.CertPool
	leaf *x509.Certificate
}

// entity is an imported certificate with its key.
type entity struct{ certificate tls.Certificate }

// serverTLS is the TLS of a service with a certificate and, where there is an authority, client certificates of it.
func (s *Switch) serverTLS(certificate, ca string, protocols ...string) *tls.Config {
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: protocols, Certificates: []tls.Certificate{s.selfSigned},
		SessionTicketsDisabled: true,
	}
	if e := s.entities[certificate]; e != nil {
		config.Certificates = []tls.Certificate{e.certificate}
	}
	if ca != "" {
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		if a := s.cas[ca]; a != nil {
			config.ClientCAs = a.pool
		}
	}
	return config
}

func (s *Switch) nvueTLS() *tls.Config {
	s.lock()
	defer s.mu.Unlock()
	return s.serverTLS(s.running.text(apiPath, "certificate"), s.running.text(apiMTLS, "ca-certificate"), "http/1.1")
}

func (s *Switch) bmcTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, Certificates: []tls.Certificate{s.bmcCert},
	}
}

func (s *Switch) importCA(id, source string) error {
	raw, err := s.readURL(source)
	if err != nil {
		return err
	}
	block, _ := pem.Decode(raw)
	if block == nil || block.Type != "CERTIFICATE" {
		return errors.New("the file holds no certificate")
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return errors.New("the certificate cannot be read")
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw) {
		return errors.New("the certificate cannot be read")
	}
	s.cas[id] = &authority{pool: pool, leaf: leaf}
	return nil
}

func (s *Switch) importEntity(id, public, private string) error {
	cert, err := s.readURL(public)
	if err != nil {
		return err
	}
	key, err := s.readURL(private)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return errors.New("the certificate and the key do not belong together")
	}
	s.entities[id] = &entity{certificate: pair}
	return nil
}

func addSecurity(at route) {
	const ca, cert = "/system/security/ca-certificate/{id}", "/system/security/certificate/{id}"
	at("POST", ca, post(map[string]func(*Switch, *call) reply{"@import": func(s *Switch, c *call) reply {
		return s.start(c, s.timing.Action, func(time.Time, *action) outcome {
			if err := s.importCA(c.r.PathValue("id"), c.parameter("uri")); err != nil {
				return failedAction(err.Error())
			}
			return succeeded()
		})
	}}))
	at("POST", cert, post(map[string]func(*Switch, *call) reply{"@import": func(s *Switch, c *call) reply {
		return s.start(c, s.timing.Action, func(time.Time, *action) outcome {
			err := s.importEntity(c.r.PathValue("id"), c.parameter("uri-public-key"), c.parameter("uri-private-key"))
			if err != nil {
				return failedAction(err.Error())
			}
			return succeeded()
		})
	}}))
	at("GET", ca, func(s *Switch, c *call) reply {
		a := s.cas[c.r.PathValue("id")]
		if a == nil {
			return notFound(c.path)
		}
		return ok(object{
			"subject": a.leaf.Subject.String(), "valid-to": a.leaf.NotAfter.UTC().Format(time.RFC3339),
			"installed": s.bound(c.r.PathValue("id")),
		})
	})
	at("GET", cert, func(s *Switch, c *call) reply {
		e := s.entities[c.r.PathValue("id")]
		if e == nil {
			return notFound(c.path)
		}
		leaf := e.certificate.Leaf
		return ok(object{
			"subject": leaf.Subject.String(), "serial-number": strings.ToUpper(leaf.SerialNumber.Text(16)),
			"valid-from": leaf.NotBefore.UTC().Format(time.RFC3339), "valid-to": leaf.NotAfter.UTC().Format(time.RFC3339),
			"installed": s.bound(c.r.PathValue("id")),
		})
	})
	addSPDM(at)
}

// bound are the services that use a certificate, by the names under which it is installed.
func (s *Switch) bound(id string) []string {
	out := []string{}
	if s.running.text(apiPath, "certificate") == id || s.running.text(apiMTLS, "ca-certificate") == id {
		out = append(out, "nvue-rest-api")
	}
	if s.running.text(gnmiPath, "certificate") == id || s.running.text(gnmiMTLS, "ca-certificate") == id {
		out = append(out, "gnmi-server")
	}
	for _, name := range []string{controllerApp, telemetryApp} {
		if s.apps[name].certificate == id || s.apps[name].authority == id {
			out = append(out, name)
		}
	}
	return out
}

// Material is PEM that a switch can be provisioned with: its server identity and the CA of its clients.
type Material struct{ CA, Certificate, Key []byte }

// Provision installs material under an id, for example as an earlier run would have, and binds it to services: nvue,
// gnmi, nmxc, telemetry. Running and saved configuration have it.
func (s *Switch) Provision(id string, m Material, services ...string) error {
	pair, err := tls.X509KeyPair(m.Certificate, m.Key)
	if err != nil {
		return fmt.Errorf("provision %s: %w", s.opts.ID, err)
	}
	block, _ := pem.Decode(m.CA)
	pool := x509.NewCertPool()
	if block == nil || !pool.AppendCertsFromPEM(m.CA) {
		return fmt.Errorf("provision %s: %w: no CA certificate", s.opts.ID, ErrInvalidOption)
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return fmt.Errorf("provision %s: %w", s.opts.ID, err)
	}
	s.lock()
	s.cas[id], s.entities[id] = &authority{pool: pool, leaf: leaf}, &entity{certificate: pair}
	for name, app := range map[string]string{serviceNMXC: controllerApp, serviceTelemetry: telemetryApp} {
		for _, service := range services {
			if service == name {
				a := s.apps[app]
				a.certificate, a.authority, a.encryption = id, id, "mtls"
			}
		}
	}
	s.mu.Unlock()
	for name, path := range map[string]string{serviceNVUE: apiPath, serviceGNMI: gnmiPath} {
		for _, service := range services {
			if service == name {
				s.SetConfig(path, object{"certificate": id, "mtls": object{"ca-certificate": id}})
			}
		}
	}
	s.CutConnections(services...)
	return nil
}

// Certificates returns the ids of imported CA and entity certificates.
func (s *Switch) Certificates() (cas, entities []string) {
	s.lock()
	defer s.mu.Unlock()
	for id := range s.cas {
		cas = append(cas, id)
	}
	for id := range s.entities {
		entities = append(entities, id)
	}
	return cas, entities
}
