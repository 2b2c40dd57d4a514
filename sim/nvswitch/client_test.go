// SPDX-License-Identifier: Apache-2.0

package nvswitch_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/crypto/ssh"

	"github.com/rackbus/rackbus/sim/nvswitch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type obj = map[string]any

// quick makes everything short enough for a test to wait for.
func quick() nvswitch.Timing {
	return nvswitch.Timing{
		Apply: time.Millisecond, Action: time.Millisecond, Install: time.Millisecond, Shutdown: 20 * time.Millisecond,
		Reboot: 80 * time.Millisecond, AppStart: 10 * time.Millisecond, Configure: time.Millisecond, SDNReset: 20 * time.Millisecond,
	}
}

const patience = 20 * time.Second

func start(t *testing.T, o nvswitch.Options) *nvswitch.Switch {
	t.Helper()
	if o.Timing == (nvswitch.Timing{}) {
		o.Timing = quick()
	}
	s, err := nvswitch.Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// client speaks NVUE, or Redfish with another base.
type client struct {
	t          *testing.T
	base       string
	user, pass string
	http       *http.Client
}

// newClient does not verify the switch and shows a certificate if it is given one.
func newClient(t *testing.T, s *nvswitch.Switch, identity ...tls.Certificate) *client {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: identity}}
	t.Cleanup(transport.CloseIdleConnections)
	return &client{
		t: t, base: "https://" + s.Addr("nvue") + "/nvue_v1", user: s.Username(), pass: s.Password(),
		http: &http.Client{Transport: transport, Timeout: patience},
	}
}

// response is an answer with its body decoded.
type response struct {
	status int
	doc    any
}

func (r response) get(names ...string) any {
	at := r.doc
	for _, n := range names {
		inner, ok := at.(obj)
		if !ok {
			return nil
		}
		at = inner[n]
	}
	return at
}

func (c *client) request(ctx context.Context, method, path string, body any) (response, error) {
	var in io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		require.NoError(c.t, err)
		in = bytes.NewReader(raw)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, in)
	require.NoError(c.t, err)
	r.Header.Set("Content-Type", "application/json")
	r.SetBasicAuth(c.user, c.pass)
	res, err := c.http.Do(r)
	if err != nil {
		return response{}, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		return response{}, err
	}
	out := response{status: res.StatusCode}
	if len(raw) > 0 {
		require.NoError(c.t, json.Unmarshal(raw, &out.doc), string(raw))
	}
	return out, nil
}

func (c *client) do(method, path string, body any) response {
	c.t.Helper()
	r, err := c.request(c.t.Context(), method, path, body)
	require.NoError(c.t, err)
	return r
}

func (c *client) get(path string) response {
	c.t.Helper()
	return c.do(http.MethodGet, path, nil)
}

// status is that of a GET of the system, 0 when there is no answer.
func (c *client) status() int {
	r, err := c.request(c.t.Context(), http.MethodGet, "/system", nil)
	if err != nil {
		return 0
	}
	return r.status
}

func (c *client) awaitStatus(want int) {
	c.t.Helper()
	require.Eventually(c.t, func() bool { return c.status() == want }, patience, 2*time.Millisecond)
}

// revision makes a revision of patches and returns its id.
func (c *client) revision(patches map[string]obj) string {
	c.t.Helper()
	created := c.do(http.MethodPost, "/revision", obj{})
	require.Equal(c.t, http.StatusOK, created.status)
	var id string
	for key := range created.doc.(obj) {
		id = key
	}
	for path, patch := range patches {
		require.Equal(c.t, http.StatusOK, c.do(http.MethodPatch, path+"?rev="+id, patch).status)
	}
	return id
}

func (c *client) startApply(id string) response {
	c.t.Helper()
	return c.do(http.MethodPatch, "/revision/"+id, obj{"state": "apply", "auto-prompt": obj{"ays": "ays_yes"}})
}

// settle polls a revision until it no longer shows apply.
func (c *client) settle(id string) response {
	c.t.Helper()
	var last response
	require.Eventually(c.t, func() bool {
		r, err := c.request(c.t.Context(), http.MethodGet, "/revision/"+id, nil)
		last = r
		return err == nil && r.get(id, "state") != "apply"
	}, patience, 2*time.Millisecond)
	return last
}

// change applies patches and returns the revision's state.
func (c *client) change(patches map[string]obj) any {
	c.t.Helper()
	id := c.revision(patches)
	require.Equal(c.t, http.StatusOK, c.startApply(id).status)
	return c.settle(id).get(id, "state")
}

// act starts an action and returns its id.
func (c *client) act(path, verb string, parameters obj) string {
	c.t.Helper()
	start := obj{"state": "start"}
	if parameters != nil {
		start["parameters"] = parameters
	}
	r := c.do(http.MethodPost, path, obj{verb: start})
	require.Equal(c.t, http.StatusCreated, r.status, r.doc)
	return r.doc.(string)
}

// follow polls an action until it no longer runs.
func (c *client) follow(id string) response {
	c.t.Helper()
	var last response
	require.Eventually(c.t, func() bool {
		last = c.get("/action/" + id)
		return last.get("state") != "action_running"
	}, patience, 2*time.Millisecond)
	return last
}

// perform runs an action to its end and returns its state.
func (c *client) perform(path, verb string, parameters obj) any {
	c.t.Helper()
	return c.follow(c.act(path, verb, parameters)).get("state")
}

func dial(t *testing.T, s *nvswitch.Switch, user, password string) *ssh.Client {
	t.Helper()
	c, err := tryDial(s, user, password)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func tryDial(s *nvswitch.Switch, user, password string) (*ssh.Client, error) {
	return ssh.Dial("tcp", s.Addr("ssh"), &ssh.ClientConfig{
		User: user, Auth: []ssh.AuthMethod{ssh.Password(password)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(), Timeout: patience,
	})
}

// run runs a command line and returns what it said.
func run(t *testing.T, c *ssh.Client, line string) (stdout, stderr string, err error) {
	t.Helper()
	session, err := c.NewSession()
	require.NoError(t, err)
	defer session.Close()
	var out, complaint bytes.Buffer
	session.Stdout, session.Stderr = &out, &complaint
	err = session.Run(line)
	return out.String(), complaint.String(), err
}

func must(t *testing.T, c *ssh.Client, line string) string {
	t.Helper()
	out, complaint, err := run(t, c, line)
	require.NoError(t, err, "%s: %s", line, complaint)
	return out
}

// pki is a CA with an identity for the switch and one for its client.
type pki struct {
	pool           *x509.CertPool
	material       nvswitch.Material
	client         tls.Certificate
	clientMaterial nvswitch.Material
}

func newPKI(t *testing.T, until time.Time) pki {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := func(serial int64, name string, ca bool) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
			NotAfter: until, IsCA: ca, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
			DNSNames:    []string{"switch.test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		}
	}
	encode := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	caDER, err := x509.CreateCertificate(rand.Reader, template(1, "ca", true), template(1, "ca", true), key.Public(), key)
	require.NoError(t, err)
	ca, err := x509.ParseCertificate(caDER)
	require.NoError(t, err)
	issue := func(serial int64, name string) nvswitch.Material {
		own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		der, err := x509.CreateCertificate(rand.Reader, template(serial, name, false), ca, own.Public(), key)
		require.NoError(t, err)
		raw, err := x509.MarshalPKCS8PrivateKey(own)
		require.NoError(t, err)
		return nvswitch.Material{CA: encode("CERTIFICATE", caDER), Certificate: encode("CERTIFICATE", der), Key: encode("PRIVATE KEY", raw)}
	}
	out := pki{pool: x509.NewCertPool(), material: issue(2, "switch"), clientMaterial: issue(3, "client")}
	out.pool.AddCert(ca)
	out.client, err = tls.X509KeyPair(out.clientMaterial.Certificate, out.clientMaterial.Key)
	require.NoError(t, err)
	return out
}
