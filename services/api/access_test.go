// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"crypto/tls"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/rackbus/rackbus/pkg/access"
	"github.com/rackbus/rackbus/pkg/certs"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// mutualTLS makes a CA and the configuration of a server it has signed.
func mutualTLS(t *testing.T) (*certs.CA, *tls.Config) {
	t.Helper()
	dir := t.TempDir()
	ca := writeCerts(t, dir)
	source, err := certs.Load(certs.Files{
		Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), CA: filepath.Join(dir, "ca.crt")}, certs.Options{})
	require.NoError(t, err)
	config, err := source.MutualServer()
	require.NoError(t, err)
	return ca, config
}

func policy(t *testing.T, s access.Settings) *access.Policy {
	t.Helper()
	p, err := access.NewPolicy(s)
	require.NoError(t, err)
	return p
}

// callAny calls a method with an empty request, which no change survives, and
// returns its first answer's error.
func callAny(ctx context.Context, cc *grpc.ClientConn, method string, streams bool) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if !streams {
		return cc.Invoke(ctx, method, &emptypb.Empty{}, &emptypb.Empty{})
	}
	s, err := cc.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	if err := s.SendMsg(&emptypb.Empty{}); err != nil {
		return err
	}
	if err := s.CloseSend(); err != nil {
		return err
	}
	return s.RecvMsg(&emptypb.Empty{})
}

// TestEveryMethodAsksForItsRole calls everything that is served as callers of every
// role, with certificates of their own, and finds a record of every call that
// changes something or was refused.
func TestEveryMethodAsksForItsRole(t *testing.T) {
	t.Parallel()
	ca, config := mutualTLS(t)
	h := newHarness(t, func(o *Options) {
		o.TLS, o.Plaintext, o.Reflection = config, false, true
		o.Access = policy(t, access.Settings{
			Viewers: []string{"spiffe://rackbus/dash*"}, Operators: []string{"uri:spiffe://rackbus/nico"}, Admins: []string{"cn:root"},
		})
	})
	type line struct{ identity, rpc, outcome string }
	want := make(map[line]bool)
	for name, role := range map[string]access.Role{
		"stranger": access.None, "dashboard": access.Viewer, "nico": access.Operator, "root": access.Admin,
	} {
		h.dial(clientTLS(t, ca, name))
		identity := "spiffe://rackbus/" + name
		for service, info := range h.server.grpc.GetServiceInfo() {
			for _, m := range info.Methods {
				method := "/" + service + "/" + m.Name
				rule, known := access.RuleOf(method)
				require.True(t, known, "%s has no rule", method)
				err := callAny(t.Context(), h.cc, method, m.IsServerStream)
				if role.Allows(rule.Least) {
					require.NotEqual(t, codes.PermissionDenied, status.Code(err), "%s as %s: %v", method, role, err)
				} else {
					requireCode(t, err, codes.PermissionDenied, method)
					for _, part := range []string{identity, "the role " + role.String(), "needs the role " + rule.Least.String(), "[auth]"} {
						require.ErrorContains(t, err, part)
					}
				}
				if rule.Changes || !role.Allows(rule.Least) {
					want[line{identity, method, codeName(status.Code(err))}] = true
				}
			}
		}
	}
	got := make(map[line]bool)
	for _, r := range h.audited(&rackbusv1.ListAuditRecordsRequest{PageSize: 50}) { // root is not always last
		l := line{r.GetIdentity(), r.GetRpc(), r.GetOutcome()}
		if l.outcome == outcomeFailure {
			l.outcome = "OK"
		}
		got[l] = true
		require.True(t, strings.HasPrefix(r.GetPeer(), "127.0.0.1:"), r.GetPeer())
	}
	require.Equal(t, want, got)
}

// audited returns all records that fit, read by an administrator of this process.
func (h *harness) audited(req *rackbusv1.ListAuditRecordsRequest) (out []*rackbusv1.AuditRecord) {
	h.t.Helper()
	for {
		page, err := (&accessService{Server: h.server}).ListAuditRecords(h.t.Context(), req)
		require.NoError(h.t, err)
		out = append(out, page.GetRecords()...)
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			return out
		}
	}
}

func TestWhoAmI(t *testing.T) {
	t.Parallel()
	ca, config := mutualTLS(t)
	h := newHarness(t, func(o *Options) {
		o.TLS, o.Plaintext = config, false
		o.Access = policy(t, access.Settings{Default: access.Operator, Viewers: []string{"spiffe://rackbus/dashboard"}})
	})
	for name, role := range map[string]rackbusv1.Role{"dashboard": rackbusv1.Role_ROLE_VIEWER, "anybody": rackbusv1.Role_ROLE_OPERATOR} {
		h.dial(clientTLS(t, ca, name))
		who, err := rackbusv1.NewAccessClient(h.cc).WhoAmI(t.Context(), &rackbusv1.WhoAmIRequest{})
		require.NoError(t, err)
		require.Equal(t, role, who.GetRole())
		require.Equal(t, "spiffe://rackbus/"+name, who.GetIdentity())
	}
	for role := range rackbusv1.Role_name {
		require.Equal(t, "ROLE_"+strings.ToUpper(strings.ReplaceAll(access.Role(role).String(), "none", "unspecified")), rackbusv1.Role(role).String())
	}
}

// Without TLS everybody has the default role and is unknown, whatever they send.
func TestPlaintextCallersHaveTheDefaultRole(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(o *Options) { o.Access = policy(t, access.Settings{Default: access.Viewer}) })
	who, err := rackbusv1.NewAccessClient(h.cc).WhoAmI(with(t.Context(), "rackbus-identity", "root"), &rackbusv1.WhoAmIRequest{})
	require.NoError(t, err)
	require.Equal(t, certs.UnknownPeer, who.GetIdentity())
	require.Equal(t, rackbusv1.Role_ROLE_VIEWER, who.GetRole())
	_, err = h.jobs.CancelJob(t.Context(), &rackbusv1.CancelJobRequest{JobId: unknownJob})
	requireCode(t, err, codes.PermissionDenied, `caller "unknown" has the role viewer`)
}

// A method without a rule is for nobody.
func TestUnlistedMethodsAreRefused(t *testing.T) {
	t.Parallel()
	ctx := access.WithPrincipal(t.Context(), access.Principal{Identity: "root", Role: access.Admin})
	requireCode(t, mayCall(ctx, "/rackbus.v1.Jobs/OfALaterVersion"), codes.PermissionDenied, "no role")
	requireCode(t, mayCall(t.Context(), "/rackbus.v1.Jobs/ListJobs"), codes.PermissionDenied, "has the role none")
}
