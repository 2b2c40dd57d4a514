// SPDX-License-Identifier: Apache-2.0

package nvswitch

import (
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/rackbus/rackbus/proto/nmxc"
)

// controllerService is the service of nmx-controller.
type controllerService struct {
	nmxc.UnimplementedNMX_ControllerServer
	sw *Switch
}

// header is the header of an answer; code replaces the true return code unless it is 0.
func (s *Switch) header(code int32, actual nmxc.ST_ReturnCode) *nmxc.NmxServerHeader {
	if s.knobs.NMXC.NoHeader {
		return nil
	}
	if code != 0 {
		actual = nmxc.ST_ReturnCode(code)
	}
	return &nmxc.NmxServerHeader{
		DomainUuid: "5f1c0000-0000-4000-8000-000000000001", AppUuid: "5f1c0000-0000-4000-8000-000000000002", AppVer: "1.2.0",
		ReturnCode: actual,
	}
}

// admits reports whether a gateway may call on this connection; the switch is locked.
func (s *Switch) admits(ctx context.Context, gateway string) nmxc.ST_ReturnCode {
	k := s.knobs.NMXC
	switch {
	case gateway == "" || k.GatewayID != "" && k.GatewayID != gateway:
		return nmxc.ST_ReturnCode_NMX_ST_BADPARAM
	case k.HelloFirst && !s.greeted[remote(ctx)]:
		return nmxc.ST_ReturnCode_NMX_ST_CONNECTION_NOT_VALID
	default:
		return nmxc.ST_ReturnCode_NMX_ST_SUCCESS
	}
}

// remote is the address of a call's client.
func remote(ctx context.Context) string {
	if p, found := peer.FromContext(ctx); found {
		return p.Addr.String()
	}
	return ""
}

// enter waits as the knobs say and locks the switch.
func (c *controllerService) enter(ctx context.Context) error {
	s := c.sw
	if !s.pause(wait(s.Knobs().NMXC.Delay), ctx.Done()) {
		if ctx.Err() == nil {
			return status.Error(codes.Unavailable, "the switch went down")
		}
		return status.FromContextError(context.Cause(ctx)).Err()
	}
	s.lock()
	return nil
}

// Hello takes any gateway that has a name and speaks version 2.5.
func (c *controllerService) Hello(ctx context.Context, r *nmxc.NmxHelloRequest) (*nmxc.NmxHelloResponse, error) {
	if err := c.enter(ctx); err != nil {
		return nil, err
	}
	s := c.sw
	defer s.mu.Unlock()
	if spend(&s.knobs.NMXC.HelloUnavailable) {
		return nil, status.Error(codes.Unavailable, "the controller is starting")
	}
	s.greeted[remote(ctx)] = true
	code := s.admits(ctx, r.GetGatewayId())
	switch {
	case code != nmxc.ST_ReturnCode_NMX_ST_SUCCESS:
	case r.GetMajorVersion() != nmxc.ProtoMsgMajorVersion_PROTO_MSG_MAJOR_VERSION,
		r.GetMinorVersion() != nmxc.ProtoMsgMinorVersion_PROTO_MSG_MINOR_VERSION:
		code = nmxc.ST_ReturnCode_NMX_ST_NOT_SUPPORTED
	}
	return &nmxc.NmxHelloResponse{ServerHeader: s.header(s.knobs.NMXC.HelloCode, code)}, nil
}

// GetStaticConfig returns keys or files.
func (c *controllerService) GetStaticConfig(ctx context.Context, r *nmxc.NmxGetStaticConfigRequest) (*nmxc.NmxGetStaticConfigResponse, error) {
	if err := c.enter(ctx); err != nil {
		return nil, err
	}
	s := c.sw
	defer s.mu.Unlock()
	out := &nmxc.NmxGetStaticConfigResponse{}
	answer := func(code nmxc.ST_ReturnCode) (*nmxc.NmxGetStaticConfigResponse, error) {
		out.ServerHeader = s.header(s.knobs.NMXC.GetCode, code)
		return out, nil
	}
	if code := s.admits(ctx, r.GetGatewayId()); code != nmxc.ST_ReturnCode_NMX_ST_SUCCESS {
		return answer(code)
	}
	if (r.GetConfigKeys() == nil) == (r.GetConfigFiles() == nil) {
		return answer(nmxc.ST_ReturnCode_NMX_ST_BADPARAM)
	}
	values, contents := &nmxc.NmxConfigKeyVals{}, &nmxc.NmxConfigFileContents{}
	for _, k := range r.GetConfigKeys().GetConfigKey() {
		value, found := s.static[k.GetConfigFileName()][k.GetKey()]
		if !found {
			continue
		}
		values.ConfigKeyVal = append(values.ConfigKeyVal, &nmxc.NmxConfigKeyVal{ConfigFileName: k.GetConfigFileName(), Key: k.GetKey(), Value: value})
	}
	for _, f := range r.GetConfigFiles().GetConfigFile() {
		file, found := s.static[f.GetConfigFileName()]
		if !found {
			return answer(nmxc.ST_ReturnCode_NMX_ST_NOT_CONFIGURED)
		}
		contents.ConfigFileContent = append(contents.ConfigFileContent, &nmxc.NmxConfigFileContent{
			ConfigFileName: f.GetConfigFileName(), ConfigFileContent: content(file, slices.Sorted(maps.Keys(file))),
		})
	}
	switch {
	case r.GetConfigFiles() != nil:
		out.StaticConfig = &nmxc.NmxStaticConfig{ConfigFileContents: contents}
	case s.knobs.NMXC.ValuesOutside:
		out.ConfigKeyVals = values
	default:
		out.StaticConfig = &nmxc.NmxStaticConfig{ConfigKeyVals: values}
	}
	return answer(nmxc.ST_ReturnCode_NMX_ST_SUCCESS)
}

// SetStaticConfig stores keys.
func (c *controllerService) SetStaticConfig(ctx context.Context, r *nmxc.NmxSetStaticConfigRequest) (*nmxc.NmxReturnCode, error) {
	if err := c.enter(ctx); err != nil {
		return nil, err
	}
	s := c.sw
	defer s.mu.Unlock()
	k := s.knobs.NMXC
	pairs := r.GetStaticConfig().GetConfigKeyVals().GetConfigKeyVal()
	code := s.admits(ctx, r.GetGatewayId())
	if code == nmxc.ST_ReturnCode_NMX_ST_SUCCESS && len(pairs) == 0 {
		code = nmxc.ST_ReturnCode_NMX_ST_BADPARAM
	}
	healthy := k.SetCode == 0 || k.SetCode == int32(nmxc.ST_ReturnCode_NMX_ST_SUCCESS)
	if code == nmxc.ST_ReturnCode_NMX_ST_SUCCESS && !k.SetIgnored && (healthy || k.SetStores) {
		now := time.Now()
		for _, p := range pairs {
			s.store(now, p.GetConfigFileName(), p.GetKey(), p.GetValue())
		}
	}
	return &nmxc.NmxReturnCode{ServerHeader: s.header(k.SetCode, code)}, nil
}
