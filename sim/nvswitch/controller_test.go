// SPDX-License-Identifier: Apache-2.0

package nvswitch_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/rackbus/rackbus/proto/nmxc"
	"github.com/rackbus/rackbus/sim/nvswitch"
	"github.com/rackbus/rackbus/sim/reqlog"
)

const manager = "/cluster/apps/nmx-controller/manager"

// fabric starts a switch whose cluster and manager are on.
func fabric(t *testing.T, o nvswitch.Options) (*nvswitch.Switch, *client) {
	t.Helper()
	s := start(t, o)
	c := newClient(t, s)
	require.Equal(t, "applied", c.change(map[string]obj{"/cluster": {"state": "enabled"}}))
	require.Equal(t, "action_success", c.perform(manager, "@update", obj{"state": "enabled"}))
	awaitPlane(t, s, "CONTROL_PLANE_STATE_UNCONFIGURED")
	return s, c
}

func awaitPlane(t *testing.T, s *nvswitch.Switch, want string) {
	t.Helper()
	require.Eventually(t, func() bool { return s.App("nmx-controller").Plane == want }, patience, s.Timing().Configure)
}

func controller(t *testing.T, s *nvswitch.Switch, creds credentials.TransportCredentials) nmxc.NMX_ControllerClient {
	t.Helper()
	c, err := grpc.NewClient("passthrough:///"+s.Addr("nmxc"), grpc.WithTransportCredentials(creds))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return nmxc.NewNMX_ControllerClient(c)
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func hello(t *testing.T, c nmxc.NMX_ControllerClient) (nmxc.ST_ReturnCode, error) {
	t.Helper()
	r, err := c.Hello(within(t), &nmxc.NmxHelloRequest{GatewayId: "g", MajorVersion: 2, MinorVersion: 5})
	return r.GetServerHeader().GetReturnCode(), err
}

func set(t *testing.T, c nmxc.NMX_ControllerClient, key, value string) nmxc.ST_ReturnCode {
	t.Helper()
	r, err := c.SetStaticConfig(within(t), &nmxc.NmxSetStaticConfigRequest{GatewayId: "g", StaticConfig: &nmxc.NmxStaticConfig{
		Context:       &nmxc.NmxContext{},
		ConfigKeyVals: &nmxc.NmxConfigKeyVals{ConfigKeyVal: []*nmxc.NmxConfigKeyVal{{ConfigFileName: "fm_config", Key: key, Value: value}}},
	}})
	require.NoError(t, err)
	return r.GetServerHeader().GetReturnCode()
}

const success = nmxc.ST_ReturnCode_NMX_ST_SUCCESS

func TestController(t *testing.T) {
	s, c := fabric(t, nvswitch.Options{})
	require.Equal(t, "up", c.get("/cluster").get("nmxc-conn", "state"))
	plain := controller(t, s, insecure.NewCredentials())
	code, err := hello(t, plain)
	require.NoError(t, err)
	require.Equal(t, success, code)
	require.Equal(t, success, set(t, plain, "MNNVL_TOPOLOGY", "gb200_nvl72r1_c2g4_topology"))
	awaitPlane(t, s, "CONTROL_PLANE_STATE_CONFIGURED")

	keys := &nmxc.NmxGetStaticConfigRequest{GatewayId: "g", ConfigKeys: &nmxc.NmxConfigKeys{ConfigKey: []*nmxc.NmxConfigKey{{ConfigFileName: "fm_config", Key: "MNNVL_TOPOLOGY"}}}}
	r, err := plain.GetStaticConfig(within(t), keys)
	require.NoError(t, err)
	require.Equal(t, "gb200_nvl72r1_c2g4_topology", r.GetStaticConfig().GetConfigKeyVals().GetConfigKeyVal()[0].GetValue())
	r, err = plain.GetStaticConfig(within(t), &nmxc.NmxGetStaticConfigRequest{GatewayId: "g", ConfigFiles: &nmxc.NmxConfigFiles{
		ConfigFile: []*nmxc.NmxConfigFile{{ConfigFileName: "fm_config"}, {ConfigFileName: "sm_config"}},
	}})
	require.NoError(t, err)
	files := r.GetStaticConfig().GetConfigFileContents().GetConfigFileContent()
	require.Len(t, files, 2)
	require.Contains(t, files[0].GetConfigFileContent(), "gb200_nvl72r1_c2g4_topology")
	require.Len(t, s.Requests(reqlog.Filter{Protocol: reqlog.GRPC}), 4)
	require.Len(t, s.Requests(reqlog.Filter{Protocol: reqlog.GRPC, Writes: true}), 1)

	s.SetKnobs(nvswitch.Knobs{NMXC: nvswitch.NMXCKnobs{HelloUnavailable: 1, SetCode: 7, SetStores: true, ValuesOutside: true}})
	_, err = hello(t, plain)
	require.Equal(t, codes.Unavailable, status.Code(err))
	require.Equal(t, nmxc.ST_ReturnCode_NMX_ST_INTERNAL_ERROR, set(t, plain, "MNNVL_TOPOLOGY", "x"))
	require.Equal(t, "x", s.StaticConfig("fm_config", "MNNVL_TOPOLOGY"))
	r, err = plain.GetStaticConfig(within(t), keys)
	require.NoError(t, err)
	require.Nil(t, r.GetStaticConfig())
	require.Equal(t, "x", r.GetConfigKeyVals().GetConfigKeyVal()[0].GetValue())
	s.SetKnobs(nvswitch.Knobs{NMXC: nvswitch.NMXCKnobs{SetIgnored: true, SetIgnoredRestarts: 1}})
	require.Equal(t, success, set(t, plain, "MNNVL_TOPOLOGY", "y"))
	require.Equal(t, "x", s.StaticConfig("fm_config", "MNNVL_TOPOLOGY"))
	require.Equal(t, "action_success", c.perform("/cluster/apps/nmx-controller", "@stop", nil))
	require.Equal(t, "stopped by user", c.get("/cluster/apps/nmx-controller").get("reason"))
	require.Equal(t, "action_success", c.perform("/cluster/apps/nmx-controller", "@start", nil))
	require.False(t, s.Knobs().NMXC.SetIgnored)
	s.SetKnobs(nvswitch.Knobs{NMXC: nvswitch.NMXCKnobs{HelloFirst: true}})
	awaitPlane(t, s, "CONTROL_PLANE_STATE_CONFIGURED")
	fresh := controller(t, s, insecure.NewCredentials())
	require.Equal(t, nmxc.ST_ReturnCode_NMX_ST_CONNECTION_NOT_VALID, set(t, fresh, "a", "b"))
	_, err = hello(t, fresh)
	require.NoError(t, err)
	require.Equal(t, success, set(t, fresh, "a", "b"))
	s.SetKnobs(nvswitch.Knobs{NMXC: nvswitch.NMXCKnobs{GatewayID: "other"}})
	require.Equal(t, nmxc.ST_ReturnCode_NMX_ST_BADPARAM, set(t, fresh, "a", "c"))
	s.SetKnobs(nvswitch.Knobs{NMXC: nvswitch.NMXCKnobs{NoHeader: true}})
	require.Eventually(t, func() bool {
		code, err := hello(t, controller(t, s, insecure.NewCredentials()))
		return err == nil && code == nmxc.ST_ReturnCode_NMX_ST_UNDEFINED
	}, patience, 20*time.Millisecond)
}

func TestControllerPort(t *testing.T) {
	s := start(t, nvswitch.Options{})
	c := newClient(t, s)
	refused := func() bool {
		conn, err := net.Dial("tcp", s.Addr("nmxc"))
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	}
	require.True(t, refused())
	require.Equal(t, "applied", c.change(map[string]obj{"/cluster": {"state": "enabled"}}))
	require.True(t, refused())
	require.Equal(t, "action_success", c.perform(manager, "@update", obj{"state": "enabled"}))
	require.Eventually(t, func() bool { return !refused() }, patience, s.Timing().Apply)

	conn, err := net.Dial("tcp", s.Addr("nmxc"))
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
	require.NoError(t, err)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
	_, err = io.Copy(io.Discard, conn)
	var timeout net.Error
	require.False(t, errors.As(err, &timeout) && timeout.Timeout(), "the connection stays open")

	require.Equal(t, "action_success", c.perform(manager, "@update", obj{"state": "disabled"}))
	require.Eventually(t, refused, patience, s.Timing().Apply)
	s.UpdateKnobs(func(k *nvswitch.Knobs) { k.ManagerStuck = true })
	require.Equal(t, "action_success", c.perform(manager, "@update", obj{"state": "enabled"}))
	require.Equal(t, "disabled", c.get(manager).get("state"))
}

func TestControllerWithMTLS(t *testing.T) {
	s, c := fabric(t, nvswitch.Options{})
	ca := newPKI(t, farAway())
	require.Equal(t, "action_error", c.perform(manager+"/encryption", "@update", obj{"mode": "mtls"}))
	stage(t, s, c, ca.material)
	require.Equal(t, "action_success", c.perform(manager+"/certificate", "@update", obj{"cert-id": "cert1"}))
	require.Equal(t, "action_success", c.perform(manager+"/ca-certificate", "@update", obj{"cacert-id": "ca1"}))
	plain := controller(t, s, insecure.NewCredentials())
	_, err := hello(t, plain)
	require.NoError(t, err)
	shell := dial(t, s, "admin", "racksim-pw")
	must(t, shell, "nv action update cluster apps nmx-controller manager encryption mtls")
	require.Equal(t, "mtls", c.get(manager+"/encryption").get("encryption"))
	require.Equal(t, []any{"nmx-controller"}, c.get("/system/security/certificate/cert1").get("installed"))
	_, err = hello(t, plain)
	require.Equal(t, codes.Unavailable, status.Code(err))
	secure := controller(t, s, credentials.NewTLS(&tls.Config{RootCAs: ca.pool, ServerName: "switch.test", Certificates: []tls.Certificate{ca.client}}))
	code, err := hello(t, secure)
	require.NoError(t, err)
	require.Equal(t, success, code)

	must(t, shell, "nv action restore cluster apps nmx-controller manager encryption")
	_, err = hello(t, controller(t, s, insecure.NewCredentials()))
	require.NoError(t, err)
	require.Equal(t, "applied", c.change(map[string]obj{"/cluster": {"state": "disabled"}}))
	_, complaint, err := run(t, shell, "nv action restore cluster apps nmx-controller manager encryption")
	require.Error(t, err)
	require.Contains(t, complaint, "cluster is not enabled")
}

func TestSDNReset(t *testing.T) {
	for _, kind := range []nvswitch.SDNReset{
		nvswitch.SDNResetShown, nvswitch.SDNResetQuiet, nvswitch.SDNResetStuck, nvswitch.SDNResetAbsent,
		nvswitch.SDNResetVanishes, nvswitch.SDNResetWithoutInfo,
	} {
		t.Run("reset "+string(kind), func(t *testing.T) {
			s, c := fabric(t, nvswitch.Options{Knobs: nvswitch.Knobs{SDNReset: kind}})
			s.SetStaticConfig("fm_config", "MNNVL_TOPOLOGY", "x")
			const app = "/cluster/apps/nmx-controller"
			require.Equal(t, "action_success", c.perform("/sdn/factory-default", "@reset", obj{"force": true}))
			require.Empty(t, s.StaticConfig("fm_config", "MNNVL_TOPOLOGY"))
			first := c.get(app)
			switch kind {
			case nvswitch.SDNResetShown:
				require.Equal(t, "FACTORY RESET IN PROGRESS", first.get("reason"))
				awaitPlane(t, s, "CONTROL_PLANE_STATE_UNCONFIGURED")
			case nvswitch.SDNResetQuiet:
				require.Equal(t, "CONTROL_PLANE_STATE_UNCONFIGURED", first.get("addition-info"))
			case nvswitch.SDNResetStuck:
				require.Equal(t, "FACTORY RESET IN PROGRESS", first.get("reason"))
			case nvswitch.SDNResetAbsent:
				require.Equal(t, http.StatusNotFound, first.status)
			case nvswitch.SDNResetVanishes:
				require.Equal(t, "FACTORY RESET IN PROGRESS", first.get("reason"))
				require.Eventually(t, func() bool { return c.get(app).status == http.StatusNotFound }, patience, s.Timing().Apply)
			case nvswitch.SDNResetWithoutInfo:
				require.Empty(t, first.get("addition-info"))
			}
		})
	}
	s := start(t, nvswitch.Options{})
	c := newClient(t, s)
	last := c.follow(c.act("/sdn/factory-default", "@reset", obj{"force": true}))
	require.Equal(t, "action_error", last.get("state"))
	require.Contains(t, last.get("issue").([]any)[0].(obj)["message"], "cluster is not enabled")
}

func TestStuckController(t *testing.T) {
	s, c := fabric(t, nvswitch.Options{})
	s.SetKnobs(nvswitch.Knobs{Controller: &nvswitch.ControllerFault{State: "CONTROL_PLANE_STATE_STANDBY", Restarts: 1}})
	const app = "/cluster/apps/nmx-controller"
	require.Equal(t, "CONTROL_PLANE_STATE_STANDBY", c.get(app).get("addition-info"))
	require.Equal(t, "action_success", c.perform(app, "@stop", nil))
	require.Equal(t, "action_success", c.perform(app, "@start", nil))
	awaitPlane(t, s, "CONTROL_PLANE_STATE_UNCONFIGURED")
	require.Equal(t, "CONTROL_PLANE_STATE_UNCONFIGURED", c.get(app).get("addition-info"))
	require.Nil(t, s.Knobs().Controller)
}
