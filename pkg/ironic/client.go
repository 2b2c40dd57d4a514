// SPDX-License-Identifier: Apache-2.0

package ironic

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"

	"github.com/rackbus/rackbus/pkg/telemetry"
)

// Minor versions of the API from which on it has something (REST API Version History
// of Ironic); major is always 1.
const (
	minorTraits     = 37
	minorConductors = 49
	minorAllocation = 52
	minorHistory    = 78
	minorInventory  = 81

	// minorKnown is the newest that is asked for.
	minorKnown = minorInventory
)

// maxBody is the most an answer may have. An inventory has some 200 KiB.
const maxBody = 8 << 20

const (
	headerMaximum = "X-OpenStack-Ironic-API-Maximum-Version"
	userAgent     = "Rackbus"
)

// Error is a request that failed. It carries no secrets.
type Error struct {
	Method, Path string
	// Status is that of the answer, 0 when none came.
	Status int
	// Message is what Ironic said.
	Message string
	cause   error
}

// Error gives one line.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", e.Method, e.Path)
	if e.Status != 0 {
		fmt.Fprintf(&b, ": HTTP %d", e.Status)
	}
	if e.Message != "" {
		b.WriteString(": " + e.Message)
	}
	return b.String()
}

// Unwrap gives the cause where no answer came.
func (e *Error) Unwrap() error { return e.cause }

// absent reports an answer of 404.
func absent(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Status == http.StatusNotFound
}

// client reads the API in the newest version that both sides know.
type client struct {
	service *gophercloud.ServiceClient
	minor   int
	// hidden are our own secrets, in the forms in which answers could repeat them.
	hidden []string
}

// open logs in and finds out the version.
func open(ctx context.Context, o Options) (*client, error) {
	env := environment{}
	if o.Auth != AuthNone {
		if o.Environment == nil {
			return nil, fmt.Errorf("%w: none are configured for auth %s", errEnvironment, o.Auth)
		}
		plain, err := o.Environment()
		if err != nil {
			return nil, err
		}
		defer plain.Wipe()
		if env, err = parseEnvironment(plain.Bytes()); err != nil {
			return nil, err
		}
	}
	if err := env.check(o.Auth); err != nil {
		return nil, err
	}
	c := &client{}
	c.hide(env[varPassword], env[varApplicationPassword])
	provider, err := c.provider(ctx, o, env)
	if err != nil {
		return nil, err
	}
	c.service = &gophercloud.ServiceClient{ProviderClient: provider, Type: "baremetal", Endpoint: baseURL(o.Endpoint)}
	if o.Auth == AuthHTTPBasic {
		basic := base64.StdEncoding.EncodeToString([]byte(env[varUser] + ":" + env[varPassword]))
		c.hide(basic)
		c.service.MoreHeaders = map[string]string{"Authorization": "Basic " + basic}
	}
	return c, c.negotiate(ctx)
}

// baseURL is the endpoint with /v1/ behind it.
func baseURL(endpoint string) string {
	endpoint = strings.TrimRight(endpoint, "/")
	return strings.TrimSuffix(endpoint, "/v1") + "/v1/"
}

func (c *client) provider(ctx context.Context, o Options, env environment) (*gophercloud.ProviderClient, error) {
	plain := http.Client{
		// A run makes a dozen requests; nothing is kept open between runs.
		Transport: limited{&http.Transport{
			DisableKeepAlives: true, Proxy: http.ProxyFromEnvironment,
			TLSClientConfig: &tls.Config{RootCAs: o.Roots, MinVersion: tls.VersionTLS12},
		}},
		Timeout: o.Request,
		// Credentials go to the endpoint and nowhere else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if o.Auth != AuthKeystone {
		p := &gophercloud.ProviderClient{HTTPClient: plain}
		p.UserAgent.Prepend(userAgent)
		return p, nil
	}
	p, err := openstack.NewClient(env[varAuthURL])
	if err != nil {
		return nil, fmt.Errorf("%w: %s is no URL", errEnvironment, varAuthURL)
	}
	p.HTTPClient = plain
	p.UserAgent.Prepend(userAgent)
	login := env.login()
	// Straight to version 3: an address that a discovery tells could lead elsewhere.
	if err := openstack.AuthenticateV3(ctx, p, &login, gophercloud.EndpointOpts{}); err != nil {
		return nil, fmt.Errorf("log in to Keystone: %w", c.failure(http.MethodPost, "v3/auth/tokens", err))
	}
	c.hide(p.Token())
	return p, nil
}

// hide makes sure that a secret never shows, also where an answer repeats it.
func (c *client) hide(secrets ...string) {
	for _, s := range secrets {
		if s == "" {
			continue
		}
		c.hidden = append(c.hidden, s)
		if quoted, err := json.Marshal(s); err == nil && string(quoted[1:len(quoted)-1]) != s {
			c.hidden = append(c.hidden, string(quoted[1:len(quoted)-1]))
		}
	}
}

// login is what Keystone is told.
func (e environment) login() gophercloud.AuthOptions {
	if e[varApplicationID] != "" {
		return gophercloud.AuthOptions{
			IdentityEndpoint: e[varAuthURL], ApplicationCredentialID: e[varApplicationID],
			ApplicationCredentialSecret: e[varApplicationPassword],
		}
	}
	o := gophercloud.AuthOptions{IdentityEndpoint: e[varAuthURL], Username: e[varUser], Password: e[varPassword]}
	o.DomainID, o.DomainName = e.domain(varUserDomainID, varUserDomain)
	switch {
	case e[varSystemScope] != "":
		o.Scope = &gophercloud.AuthScope{System: true}
	case e[varProjectID] != "":
		o.Scope = &gophercloud.AuthScope{ProjectID: e[varProjectID]}
	case e[varProject] != "":
		o.Scope = &gophercloud.AuthScope{ProjectName: e[varProject]}
		o.Scope.DomainID, o.Scope.DomainName = e.domain(varProjectDomainID, varProjectDomain)
	}
	return o
}

// domain is one of id and name; without both it is the domain that every Keystone
// has from its installation.
func (e environment) domain(id, name string) (string, string) {
	switch {
	case e[id] != "":
		return e[id], ""
	case e[name] != "":
		return "", e[name]
	default:
		return "default", ""
	}
}

// negotiate finds the newest version of the API that both sides know.
func (c *client) negotiate(ctx context.Context) error {
	var root json.RawMessage
	resp, err := c.service.Get(ctx, c.service.Endpoint, &root, nil) //nolint:bodyclose // gophercloud closes what it decodes
	if err != nil {
		return c.failure(http.MethodGet, "v1/", err)
	}
	major, minor, ok := strings.Cut(resp.Header.Get(headerMaximum), ".")
	newest, err := strconv.Atoi(minor)
	if !ok || major != "1" || err != nil {
		return &Error{Method: http.MethodGet, Path: "v1/", Status: resp.StatusCode, Message: "the answer names no version of the API: this is not Ironic"}
	}
	c.minor = min(newest, minorKnown)
	c.service.Microversion = fmt.Sprintf("1.%d", c.minor)
	return nil
}

// get reads one resource below /v1, without our own secrets in it.
func (c *client) get(ctx context.Context, path string) (json.RawMessage, error) {
	var raw json.RawMessage
	resp, err := c.service.Get(ctx, c.service.Endpoint+path, &raw, nil) //nolint:bodyclose // gophercloud closes what it decodes
	if err != nil {
		return nil, c.failure(http.MethodGet, "v1/"+path, err)
	}
	clean := json.RawMessage(c.scrub(string(raw)))
	if !json.Valid(clean) {
		return nil, &Error{Method: http.MethodGet, Path: "v1/" + path, Status: resp.StatusCode, Message: "the answer holds our password outside of a text"}
	}
	return clean, nil
}

func (c *client) scrub(text string) string {
	for _, own := range c.hidden {
		text = strings.ReplaceAll(text, own, telemetry.Mask)
	}
	return text
}

// failure gives an error of the transport our form.
func (c *client) failure(method, path string, err error) error {
	out := &Error{Method: method, Path: path}
	var answer gophercloud.ErrUnexpectedResponseCode
	var target *url.Error
	switch {
	case errors.As(err, &answer):
		out.Status, out.Message = answer.Actual, c.scrub(wordsOf(answer.Body))
	case errors.As(err, &target):
		// Its own text repeats the whole URL.
		out.Message, out.cause = c.scrub(target.Err.Error()), target.Err
		if target.Timeout() {
			out.Message = "no answer in time"
		}
	default:
		out.Message, out.cause = "the answer cannot be read: "+c.scrub(err.Error()), err
	}
	return out
}

// maxWords bounds what is taken over of an answer that is an error.
const maxWords = 300

// wordsOf finds the text in an error of Ironic, which has it as faultstring in
// error_message, an object or a text with an object in it, or of Keystone.
func wordsOf(body []byte) string {
	var doc struct {
		Message json.RawMessage `json:"error_message"`
		Error   struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	text := string(body)
	if json.Unmarshal(body, &doc) == nil {
		text = doc.Error.Message
		inner := []byte(doc.Message)
		var quoted string
		if json.Unmarshal(inner, &quoted) == nil {
			inner, text = []byte(quoted), quoted
		}
		var fault struct {
			Text string `json:"faultstring"`
		}
		if json.Unmarshal(inner, &fault) == nil && fault.Text != "" {
			text = fault.Text
		}
	}
	text = strings.ToValidUTF8(strings.Join(strings.Fields(text), " "), "?")
	if len(text) > maxWords {
		text = strings.ToValidUTF8(text[:maxWords], "") + "..."
	}
	return telemetry.RedactText(text)
}

// limited bounds the answers.
type limited struct{ inner http.RoundTripper }

// errTooLarge says that an answer has more than maxBody.
var errTooLarge = errors.New("the answer is larger than 8 MiB")

// RoundTrip sends a request.
func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.inner.RoundTrip(r)
	if err == nil {
		resp.Body = &boundedBody{ReadCloser: resp.Body, left: maxBody}
	}
	return resp, err
}

type boundedBody struct {
	io.ReadCloser
	left int64
}

// Read fails beyond the bound, so that nothing is taken for whole that was cut.
func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLarge
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
