// SPDX-License-Identifier: Apache-2.0

package redfish_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/redfish"
)

func TestTrayPowerState(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]redfish.PowerState{
		`"On"`: redfish.PowerStateOn, `"Off"`: redfish.PowerStateOff, `"PoweringOn"`: redfish.PowerStateUnknown,
		`"Paused"`: redfish.PowerStateUnknown, `null`: redfish.PowerStateUnknown, `{"odd":1}`: redfish.PowerStateUnknown,
	} {
		b := newBMC(t)
		b.system(raw)
		got, err := b.client(gb200).PowerState(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, got.State, raw)
	}
}

func TestSystemIsFoundByWalking(t *testing.T) {
	t.Parallel()
	b := newBMC(t)
	b.on("/redfish/v1", ok(`{"Systems":{"@odata.id":"/redfish/v1/Sys"}}`))
	b.on("/redfish/v1/Sys", ok(`{"Members":["/redfish/v1/Sys/0",{"@odata.id":"https://elsewhere/1"},{"@odata.id":"/redfish/v1/Sys/1"}]}`))
	b.on("/redfish/v1/Sys/0", ok(`{"Id":"HGX_Baseboard_0","PowerState":"Off"}`))
	b.on("/redfish/v1/Sys/1", ok(`{"Id":"System_0","PowerState":"On"}`))
	got, err := b.client(gb200).PowerState(t.Context())
	require.NoError(t, err)
	require.Equal(t, redfish.PowerStateOn, got.State)

	b.on("/redfish/v1/Sys/1", ok(`{"Id":"Other"}`))
	_, err = b.client(gb200).PowerState(t.Context())
	require.Equal(t, redfish.CodeNotFound, redfish.CodeOf(err))
}

func TestTrayPowerOperations(t *testing.T) {
	t.Parallel()
	for op, want := range map[redfish.PowerOp]string{
		redfish.PowerOff: "GracefulShutdown", redfish.PowerOn: "On", redfish.PowerReset: "PowerCycle",
		redfish.PowerForceOff: "ForceOff", redfish.PowerForceOn: "ForceOn", redfish.PowerGracefulShutdown: "GracefulShutdown",
		redfish.PowerGracefulRestart: "GracefulRestart", redfish.PowerForceRestart: "ForceRestart",
	} {
		b := newBMC(t)
		b.system(`"On"`)
		b.on("POST "+resetURI, reply(204, ""))
		require.NoError(t, b.client(gb300).Power(t.Context(), op))
		posts := b.requests("POST", resetURI)
		require.Len(t, posts, 1)
		require.JSONEq(t, `{"ResetType":"`+want+`"}`, posts[0].body)
	}
	b := newBMC(t)
	require.ErrorIs(t, b.client(gb200).Power(t.Context(), 99), redfish.ErrUnsupportedPowerOp)
	b.on(systemURI, ok(`{"Id":"System_0"}`))
	err := b.client(gb200).Power(t.Context(), redfish.PowerOn)
	require.ErrorIs(t, err, redfish.ErrNoAction)
	require.Equal(t, redfish.CodeFailedPrecondition, redfish.CodeOf(err))
}

func TestH1PowerOnConflictIsRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newPipeBMC(t)
		defer b.close()
		b.system(`"Off"`)
		refusal := refuse(409, "Base.1.18.ActionParameterValueConflict", "powering off")
		b.on("POST "+resetURI, refusal, refusal, refusal, reply(204, ""))
		started := time.Now()
		require.NoError(t, b.client(gb200, defaults).Power(t.Context(), redfish.PowerOn))
		require.Len(t, b.requests("POST", resetURI), 4)
		require.Equal(t, 30*time.Second, time.Since(started))

		b.on("POST "+resetURI, refusal)
		err := b.client(gb200, defaults).Power(t.Context(), redfish.PowerOn)
		require.Equal(t, redfish.CodeConflict, redfish.CodeOf(err))
		require.Len(t, b.requests("POST", resetURI), 4+6)
	})
}

func TestH2PowerOnRefusedForSystemStateIsRetried(t *testing.T) {
	t.Parallel()
	b := newBMC(t)
	b.system(`"Off"`)
	refusal := refuse(400, "iLO.2.15.InvalidOperationForSystemState", "The operation was not successful due to the current power state.")
	b.on("POST "+resetURI, refusal, refusal, reply(200, `{}`))
	require.NoError(t, b.client(gb200).Power(t.Context(), redfish.PowerOn))
	require.Len(t, b.requests("POST", resetURI), 3)
}

func TestH8RefusalSurfacesAtOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status  int
		message string
		code    redfish.ErrorCode
		op      redfish.PowerOp
	}{
		{400, "Base.1.8.ActionParameterNotSupported", redfish.CodeInvalidArgument, redfish.PowerOn},
		{409, "Base.1.8.ResourceInUse", redfish.CodeConflict, redfish.PowerOn},
		// An off that conflicts is no power-on.
		{409, "Base.1.8.ActionParameterValueConflict", redfish.CodeConflict, redfish.PowerOff},
		{400, "Vendor.1.0.Nope", redfish.CodeInternal, redfish.PowerOn},
		{503, "Base.1.8.ServiceTemporarilyUnavailable", redfish.CodeUnavailable, redfish.PowerOn},
	} {
		b := newBMC(t)
		b.system(`"Off"`)
		b.on("POST "+resetURI, refuse(c.status, c.message, "no"))
		err := b.client(gb200).Power(t.Context(), c.op)
		e := asError(t, err)
		require.Equal(t, c.code, e.Code, c.message)
		require.Equal(t, c.message, e.MessageID)
		require.Equal(t, "no", e.Message)
		require.Equal(t, "Do better.", e.Resolution)
		require.Contains(t, err.Error(), c.message)
		require.False(t, e.OutcomeUnknown(), "it was refused")
		require.Len(t, b.requests("POST", resetURI), 1)
	}
}

func TestLostAnswerToAChangeIsUnknown(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]http.HandlerFunc{
		"connection dropped": cut,
		"half an answer":     reply(200, "{", "Content-Length", "100"),
		"gateway timeout":    reply(504, ""),
	} {
		t.Run(name, func(t *testing.T) {
			b := newBMC(t)
			b.system(`"Off"`)
			b.on("POST "+resetURI, answer)
			err := b.client(gb200).Power(t.Context(), redfish.PowerOn)
			require.True(t, asError(t, err).OutcomeUnknown())
			require.Len(t, b.requests("POST", resetURI), 1, "a change is never repeated unasked")
		})
	}
}

const shelfURI = "/redfish/v1/Chassis/powershelf"

// shelf serves a LiteOn chassis with these actions and supplies.
func (b *bmc) shelf(actions string, supplies ...string) {
	b.on("/redfish/v1/Chassis", ok(members("/redfish/v1/Chassis/other", shelfURI)))
	b.on(shelfURI, ok(`{"Id":"powershelf","PowerSubsystem":{"@odata.id":"`+shelfURI+`/PowerSubsystem"},"Actions":`+actions+`}`))
	b.on(shelfURI+"/PowerSubsystem", ok(`{"PowerSupplies":{"@odata.id":"`+shelfURI+`/PowerSubsystem/PowerSupplies"}}`))
	var paths []string
	for i, s := range supplies {
		path := shelfURI + "/PowerSubsystem/PowerSupplies/" + string(rune('0'+i))
		paths = append(paths, path)
		if s == "" {
			b.on(path, reply(500, ""))
		} else {
			b.on(path, ok(`{"PowerState":`+s+`}`))
		}
	}
	b.on(shelfURI+"/PowerSubsystem/PowerSupplies", ok(members(paths...)))
}

func TestShelfPowerState(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		supplies []string
		want     redfish.PowerState
	}{
		{"all on", []string{"true", `"On"`, `"TRUE"`}, redfish.PowerStateOn},
		{"one off", []string{"true", "false"}, redfish.PowerStateOff},
		{"one off in words", []string{"true", `"off"`}, redfish.PowerStateOff},
		{"unreadable is skipped", []string{"", "true"}, redfish.PowerStateOn},
		{"null is skipped", []string{"null", "true"}, redfish.PowerStateOn},
		{"nothing to read", []string{"", "null", `"N/A"`}, redfish.PowerStateUnknown},
		{"no supplies", nil, redfish.PowerStateUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBMC(t)
			b.shelf("{}", c.supplies...)
			got, err := b.client(liteon).PowerState(t.Context())
			require.NoError(t, err)
			require.Equal(t, c.want, got.State)
		})
	}
	b := newBMC(t)
	b.on("/redfish/v1/Chassis", ok(members("/redfish/v1/Chassis/tray")))
	_, err := b.client(liteon).PowerState(t.Context())
	require.Error(t, err)
}

func TestShelfChassisIsLookedUpOnce(t *testing.T) {
	t.Parallel()
	b := newBMC(t)
	b.shelf("{}", "true")
	c := b.client(liteon)
	for range 3 {
		_, err := c.PowerState(t.Context())
		require.NoError(t, err)
	}
	lists := 0
	for _, s := range b.requests("GET", "/redfish/v1/Chassis") {
		if s.path == "/redfish/v1/Chassis" {
			lists++
		}
	}
	require.Equal(t, 1, lists)
}

func TestShelfPowerOperations(t *testing.T) {
	t.Parallel()
	const direct = `{"#Chassis.On":{"target":"/on","@Redfish.ActionInfo":"/onInfo"},"#Chassis.ForceOff":{"target":"/off","@Redfish.ActionInfo":{"@odata.id":"/offInfo"}},
		"#Chassis.Reset":{"target":"/reset","@Redfish.ActionInfo":"/resetInfo"}}`
	const onlyReset = `{"#Chassis.Reset":{"target":"/reset","@Redfish.ActionInfo":"/resetInfo"}}`
	for _, c := range []struct {
		name, actions, path, body string
		op                        redfish.PowerOp
	}{
		{"on", direct, "/on", `{"OnType":"On"}`, redfish.PowerOn},
		{"force on", direct, "/on", `{"OnType":"On"}`, redfish.PowerForceOn},
		{"force off", direct, "/off", `{"ForceOffType":"ForceOff"}`, redfish.PowerForceOff},
		{"off by reset", direct, "/reset", `{"ResetType":"GracefulShutdown"}`, redfish.PowerOff},
		{"on by reset", onlyReset, "/reset", `{"ResetType":"On"}`, redfish.PowerOn},
		{"no parameters known", `{"#Chassis.On":{"target":"/on"}}`, "/on", `{}`, redfish.PowerOn},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBMC(t)
			b.shelf(c.actions, "true")
			b.on("/onInfo", ok(`{"Parameters":[{"Name":"OnType","AllowableValues":["On"]},{"Name":"Odd"}]}`))
			b.on("/offInfo", ok(`{"Parameters":[{"Name":"ForceOffType","DefaultValue":"ForceOff","AllowableValues":["x"]}]}`))
			b.on("/resetInfo", ok(`{"Parameters":[{"Name":"ResetType","AllowableValues":["On","GracefulShutdown"]}]}`))
			b.on("POST "+c.path, reply(204, ""))
			require.NoError(t, b.client(liteon).Power(t.Context(), c.op))
			posts := b.requests("POST", "/")
			require.Len(t, posts, 1)
			require.JSONEq(t, c.body, posts[0].body)
		})
	}
}

func TestShelfRefusesWhatItCannotDo(t *testing.T) {
	t.Parallel()
	b := newBMC(t)
	for _, op := range []redfish.PowerOp{redfish.PowerReset, redfish.PowerGracefulShutdown, redfish.PowerGracefulRestart, redfish.PowerForceRestart} {
		err := b.client(liteon).Power(t.Context(), op)
		require.ErrorIs(t, err, redfish.ErrUnsupportedPowerOp)
		require.Equal(t, redfish.CodeInvalidArgument, redfish.CodeOf(err))
		require.Contains(t, err.Error(), op.String()+" is not supported for powershelf power control")
	}
	require.Empty(t, b.requests("", "/"))

	b.shelf(`{"#Chassis.Reset":{"target":"/reset","ResetType@Redfish.AllowableValues":["On","ForceOff"]}}`, "true")
	err := b.client(liteon).Power(t.Context(), redfish.PowerOff)
	require.Equal(t, redfish.CodeFailedPrecondition, redfish.CodeOf(err))
	b.shelf(`{}`, "true")
	require.ErrorIs(t, b.client(liteon).Power(t.Context(), redfish.PowerOff), redfish.ErrNoAction)
	require.Empty(t, b.requests("POST", "/"))
}

func TestF8BodyOfActionWithoutParameters(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]http.HandlerFunc{
		"415 without a body": func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Content-Type") == "" {
				w.WriteHeader(http.StatusUnsupportedMediaType)
			}
		},
		"400 with one": func(w http.ResponseWriter, r *http.Request) {
			if r.ContentLength != 0 {
				w.WriteHeader(http.StatusBadRequest)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBMC(t)
			b.shelf(`{"#Chassis.On":{"target":"/on"}}`)
			b.on("POST /on", answer)
			require.NoError(t, b.client(liteon).Power(t.Context(), redfish.PowerOn))
			require.LessOrEqual(t, len(b.requests("POST", "/on")), 2)
		})
	}
}
