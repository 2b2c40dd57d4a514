// SPDX-License-Identifier: Apache-2.0

package redfish_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/redfish"
)

const (
	auxURI     = chassisURI + "/BMC_0/Actions/Oem/NvidiaChassis.AuxPowerReset"
	managerURI = "/redfish/v1/Managers/BMC_0"
)

// tray behaves like a host with an AUX cycle: resets move its power, the cycle
// needs it off.
type tray struct {
	*bmc
	power atomic.Value
	// ignoreOn is how many power-ons have no effect.
	ignoreOn atomic.Int32
}

func newTray(t *testing.T) *tray {
	x := &tray{bmc: newPipeBMC(t)}
	x.power.Store("On")
	x.on("/redfish/v1", ok(`{}`))
	x.on("GET "+systemURI, func(w http.ResponseWriter, r *http.Request) {
		ok(`{"Id":"System_0","PowerState":"`+x.power.Load().(string)+`","Actions":{"#ComputerSystem.Reset":{"target":"`+resetURI+`"}}}`)(w, r)
	})
	x.on("POST "+resetURI, x.reset)
	x.on(chassisURI, ok(members(chassisURI+"/Chassis_0", chassisURI+"/BMC_0")))
	x.on(chassisURI+"/Chassis_0", ok(`{}`))
	x.on(chassisURI+"/BMC_0", ok(`{"Id":"BMC_0","Actions":{"Oem":{"#NvidiaChassis.AuxPowerReset":{"target":"`+auxURI+`"}}}}`))
	x.on("POST "+auxURI, func(w http.ResponseWriter, r *http.Request) {
		if x.power.Load() != "Off" {
			refuse(400, "OpenBMC.0.4.ChassisPowerStateOffRequired", "the chassis has to be off")(w, r)
		}
	})
	x.on("GET "+managerURI, ok(`{"Id":"BMC_0","LastResetTime":"t0","Actions":{"#Manager.Reset":{"target":"/mreset"}}}`))
	return x
}

func (x *tray) reset(_ http.ResponseWriter, r *http.Request) {
	body := x.lastBody()
	switch {
	case strings.Contains(body, "ForceOff"):
		x.power.Store("Off")
	case x.ignoreOn.Add(-1) < 0:
		x.power.Store("On")
	}
	_ = r
}

func (b *bmc) lastBody() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log[len(b.log)-1].body
}

// changes gives the changing requests in order, shortened.
func (b *bmc) changes() []string {
	var out []string
	for _, s := range b.requests("POST", "/") {
		out = append(out, strings.TrimSuffix(strings.TrimPrefix(s.body, `{"ResetType":"`), `"}`))
	}
	return out
}

func TestActivationGB200(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newTray(t)
		defer x.close()
		var steps []redfish.Step
		started := time.Now()
		err := x.client(gb200, defaults).Activate(t.Context(), nil, func(s redfish.Step, _ int) error { steps = append(steps, s); return nil })
		require.NoError(t, err)
		require.Equal(t, []string{"ForceOff", "AuxPowerCycle", "On"}, x.changes())
		require.Equal(t, []redfish.Step{"force_off", "wait_off", "aux_cycle", "aux_settle", "power_on", "wait_on"}, steps)
		require.Equal(t, 180*time.Second, time.Since(started))
	})
}

func TestActivationGB200GetsASecondRound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newTray(t)
		defer x.close()
		x.ignoreOn.Store(1)
		require.NoError(t, x.client(gb200, defaults).Activate(t.Context(), nil, nil))
		require.Equal(t, []string{"ForceOff", "AuxPowerCycle", "On", "AuxPowerCycle", "On"}, x.changes())
	})
	synctest.Test(t, func(t *testing.T) {
		x := newTray(t)
		defer x.close()
		x.ignoreOn.Store(100)
		err := x.client(gb200, defaults).Activate(t.Context(), nil, nil)
		require.ErrorIs(t, err, redfish.ErrPowerState)
		require.ErrorContains(t, err, "OFF")
		require.Equal(t, []string{"ForceOff", "AuxPowerCycle", "On", "AuxPowerCycle", "On"}, x.changes())
	})
}

func TestH4ActivationGB300RepeatsOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newTray(t)
		defer x.close()
		x.on("/redfish/v1", append(again(4, reply(503, "")), ok(`{}`))...)
		x.ignoreOn.Store(2)
		started := time.Now()
		require.NoError(t, x.client(gb300, defaults).Activate(t.Context(), nil, nil))
		require.Equal(t, []string{"ForceOff", "AuxPowerCycle", "On", "On", "On"}, x.changes())
		require.Equal(t, 20*time.Second+25*time.Second+125*time.Second, time.Since(started))
	})
	synctest.Test(t, func(t *testing.T) {
		x := newTray(t)
		defer x.close()
		x.ignoreOn.Store(100)
		require.ErrorIs(t, x.client(gb300, defaults).Activate(t.Context(), nil, nil), redfish.ErrPowerState)
	})
}

func TestH5AuxCycleWhileTheHostIsOnIsRefusedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newTray(t)
		defer x.close()
		err := x.client(gb200, defaults).RunStep(t.Context(), redfish.StepAuxCycle, nil)
		require.Equal(t, redfish.CodeFailedPrecondition, redfish.CodeOf(err))
		require.Equal(t, "OpenBMC.0.4.ChassisPowerStateOffRequired", asError(t, err).MessageID)
		require.Len(t, x.requests("POST", "/"), 1)
	})
}

func TestLostAnswerToTheAuxCycleIsSettledByLooking(t *testing.T) {
	t.Parallel()
	lose := func(t *testing.T, after http.HandlerFunc) (*tray, error) {
		x := newTray(t)
		x.power.Store("Off")
		x.on("POST "+auxURI, cut)
		before := ok(`{"Id":"BMC_0","Actions":{"#Manager.Reset":{"target":"/mreset"}},"Oem":{"UptimeSeconds":9000}}`)
		x.on("GET "+managerURI, before, after)
		return x, x.client(gb200, defaults).RunStep(t.Context(), redfish.StepAuxCycle, nil)
	}
	synctest.Test(t, func(t *testing.T) {
		x, err := lose(t, ok(`{"Id":"BMC_0","Oem":{"UptimeSeconds":"12"}}`))
		defer x.close()
		require.NoError(t, err, "the BMC runs for a shorter time than before")
		require.Len(t, x.requests("POST", auxURI), 1)
	})
	synctest.Test(t, func(t *testing.T) {
		x, err := lose(t, ok(`{"Id":"BMC_0","Oem":{"UptimeSeconds":9300}}`))
		defer x.close()
		require.True(t, asError(t, err).OutcomeUnknown())
		require.Len(t, x.requests("POST", auxURI), 1, "it is never sent again")
	})
}

func TestPreparedStepCanBeInspected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newTray(t)
		defer x.close()
		c := x.client(gb200, defaults)
		state := &redfish.ActivationState{}
		require.NoError(t, c.PrepareStep(t.Context(), redfish.StepForceOff, state))
		require.Nil(t, state.Manager)
		require.NoError(t, c.PrepareStep(t.Context(), redfish.StepAuxCycle, state))
		happened, err := c.StepHappened(t.Context(), redfish.StepAuxCycle, state)
		require.NoError(t, err)
		require.False(t, happened)
		x.on("GET "+managerURI, ok(`{"Id":"BMC_0","LastResetTime":"t1"}`))
		happened, err = c.StepHappened(t.Context(), redfish.StepAuxCycle, state)
		require.NoError(t, err)
		require.True(t, happened)
		x.on("GET "+managerURI, reply(503, ""))
		_, err = c.StepHappened(t.Context(), redfish.StepAuxCycle, state)
		require.Error(t, err)
	})
}

// Whoever takes over looks minutes later: the uptime of a BMC that was restarted has
// grown beyond the former one by then, and the cycle must not be sent again.
func TestRestartIsSeenHoweverLateAnUptimeIsRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newTray(t)
		defer x.close()
		c := x.client(gb200, defaults)
		state := &redfish.ActivationState{}
		x.on("GET "+managerURI, ok(`{"Id":"BMC_0","Oem":{"UptimeSeconds":240}}`))
		require.NoError(t, c.PrepareStep(t.Context(), redfish.StepAuxCycle, state))
		time.Sleep(10 * time.Minute)
		x.on("GET "+managerURI, ok(`{"Id":"BMC_0","Oem":{"UptimeSeconds":840}}`))
		happened, err := c.StepHappened(t.Context(), redfish.StepAuxCycle, state)
		require.NoError(t, err)
		require.False(t, happened, "it ran all the time")
		x.on("GET "+managerURI, ok(`{"Id":"BMC_0","Oem":{"UptimeSeconds":500}}`))
		happened, err = c.StepHappened(t.Context(), redfish.StepAuxCycle, state)
		require.NoError(t, err)
		require.True(t, happened, "it cannot have run since before")
		for _, silent := range []string{`{"Id":"BMC_0"}`, `{"Id":"BMC_0","Oem":{"UptimeSeconds":240}}`} {
			x.on("GET "+managerURI, ok(silent))
			_, err = c.StepHappened(t.Context(), redfish.StepAuxCycle, state)
			require.Equal(t, redfish.CodeUnavailable, redfish.CodeOf(err), "silence, or a clock that stands still, proves nothing")
		}
	})
}

func TestPowerStepIsRepeatedOnlyWhenItMayHelp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newTray(t)
		defer x.close()
		x.on("POST "+resetURI, cut, reply(503, ""), x.reset)
		started := time.Now()
		require.NoError(t, x.client(gb200, defaults).RunStep(t.Context(), redfish.StepForceOff, nil))
		require.Equal(t, 2*time.Minute, time.Since(started))

		x.power.Store("On")
		x.on("POST "+resetURI, refuse(409, "Base.1.8.ActionParameterValueConflict", "starting"), refuse(400, "iLO.2.8.InvalidOperationForSystemState", "starting"), x.reset)
		started = time.Now()
		require.NoError(t, x.client(gb200, defaults).RunStep(t.Context(), redfish.StepForceOff, nil))
		require.Equal(t, 2*time.Minute, time.Since(started), "a transition passes")

		x.power.Store("On")
		x.on("POST "+resetURI, refuse(400, "Base.1.8.ActionParameterNotSupported", "no"))
		started = time.Now()
		err := x.client(gb200, defaults).RunStep(t.Context(), redfish.StepForceOff, nil)
		require.Equal(t, redfish.CodeInvalidArgument, redfish.CodeOf(err))
		require.Zero(t, time.Since(started))
	})
}

// Some BMCs refuse to switch off what is off, or on what has come on by itself after the
// AUX cycle: the host is where the step is to bring it.
func TestPowerStepOfAHostThatIsThereAlready(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newTray(t)
		defer x.close()
		for _, c := range []struct {
			step    redfish.Step
			power   string
			refusal http.HandlerFunc
		}{
			{redfish.StepForceOff, "Off", refuse(409, "IDRAC.2.8.PSU501", "the server is off already")},
			{redfish.StepForceOff, "Off", refuse(400, "Base.1.8.ActionParameterNotSupported", "it is off")},
			{redfish.StepPowerOn, "On", refuse(409, "Base.1.8.ActionParameterValueConflict", "it is on")},
		} {
			x.power.Store(c.power)
			x.on("POST "+resetURI, c.refusal)
			require.NoError(t, x.client(gb200, defaults).RunStep(t.Context(), c.step, nil))
			x.power.Store(map[string]string{"On": "Off", "Off": "On"}[c.power])
			require.Error(t, x.client(gb200, defaults).RunStep(t.Context(), c.step, nil), "it is not there, and the refusal stands")
		}
	})
}

func TestH7WaitPowerReportsTransitions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newTray(t)
		defer x.close()
		x.power.Store("PoweringOn")
		err := x.client(gb200, defaults).WaitPower(t.Context(), redfish.PowerStateOn, 10*time.Minute)
		require.ErrorIs(t, err, redfish.ErrPowerState)
		require.ErrorContains(t, err, "PoweringOn")
	})
}

// controller serves the manager of a shelf.
func controller(t *testing.T, manager ...http.HandlerFunc) *bmc {
	b := newPipeBMC(t)
	b.on("/redfish/v1", ok(`{}`))
	b.on("/redfish/v1/Managers", ok(members("/redfish/v1/Managers/other", "/redfish/v1/Managers/bmc")))
	b.on("/redfish/v1/Managers/other", ok(`{}`))
	b.on("GET /redfish/v1/Managers/bmc", manager...)
	b.on("POST /mreset", reply(204, ""))
	return b
}

const resettable = `"Actions":{"#Manager.Reset":{"target":"/mreset","ResetType@Redfish.AllowableValues":["GracefulRestart","ForceRestart"]}}`

func TestShelfActivation(t *testing.T) {
	t.Parallel()
	plain := ok(`{"Id":"bmc",` + resettable + `}`)
	for _, c := range []struct {
		name    string
		manager []http.HandlerFunc
		root    []http.HandlerFunc
		post    http.HandlerFunc
		want    redfish.RestartEvidence
		took    time.Duration
		failed  redfish.ErrorCode
	}{
		{"an outage is seen", []http.HandlerFunc{plain}, []http.HandlerFunc{ok(`{}`), reply(503, ""), cut, ok(`{}`)}, reply(204, ""), redfish.RestartOutage, time.Minute, ""},
		{"restarted between two probes: reset time", []http.HandlerFunc{ok(`{"LastResetTime":"t0",` + resettable + `}`), ok(`{"LastResetTime":"t0"}`), ok(`{"LastResetTime":"t1"}`)},
			[]http.HandlerFunc{ok(`{}`)}, reply(204, ""), redfish.RestartResetTime, 30 * time.Second, ""},
		{"restarted between two probes: uptime", []http.HandlerFunc{ok(`{"Oem":{"UptimeSeconds":500.5},` + resettable + `}`), ok(`{"Oem":{"UptimeSeconds":4}}`)},
			[]http.HandlerFunc{ok(`{}`)}, reply(204, ""), redfish.RestartUptime, 15 * time.Second, ""},
		{"tells nothing, answers steadily", []http.HandlerFunc{plain}, []http.HandlerFunc{ok(`{}`)}, reply(204, ""), redfish.RestartSteady, 180 * time.Second, ""},
		{"tells its reset time, and it stays", []http.HandlerFunc{ok(`{"LastResetTime":"t0",` + resettable + `}`)},
			[]http.HandlerFunc{ok(`{}`)}, reply(204, ""), "", 1785 * time.Second, redfish.CodeTimeout},
		{"answer lost, outage", []http.HandlerFunc{plain}, []http.HandlerFunc{cut, cut, ok(`{}`)}, cut, redfish.RestartOutage, 15 * time.Second, ""},
		{"answer lost, no outage", []http.HandlerFunc{plain}, []http.HandlerFunc{ok(`{}`)}, cut, "", 120 * time.Second, redfish.CodeTimeout},
		{"does not come back", []http.HandlerFunc{plain}, []http.HandlerFunc{cut}, reply(204, ""), "", 1785 * time.Second, redfish.CodeTimeout},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := controller(t, c.manager...)
				defer b.close()
				b.on("/redfish/v1", c.root...)
				b.on("POST /mreset", c.post)
				client := b.client(liteon, defaults)
				state, err := client.ResetManager(t.Context(), false)
				require.NoError(t, err)
				started := time.Now()
				got, err := client.WaitManager(t.Context(), state)
				require.Equal(t, c.failed, redfish.CodeOf(err))
				require.Equal(t, c.want, got)
				require.Equal(t, c.took, time.Since(started))
				require.Equal(t, []string{"GracefulRestart"}, b.changes())
			})
		})
	}
}

// A controller that tells neither reset time nor uptime keeps its tasks in memory.
func TestControllerThatForgetsItsTasksHasRestarted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		before, after []string
		want          redfish.RestartEvidence
	}{
		{"all gone", []string{"5", "6"}, nil, redfish.RestartTasks},
		{"new ones only", []string{"5"}, []string{"1"}, redfish.RestartTasks},
		{"one left", []string{"5", "6"}, []string{"6"}, redfish.RestartSteady},
		{"only another controller's are gone", []string{"HGX_5"}, nil, redfish.RestartSteady},
		{"there were none", nil, nil, redfish.RestartSteady},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := controller(t, ok(`{"Id":"bmc",`+resettable+`}`))
				defer b.close()
				list := func(ids []string) string {
					var paths []string
					for _, id := range ids {
						paths = append(paths, tasksURI+"/"+id)
					}
					return members(paths...)
				}
				b.on(tasksURI, ok(list(c.before)))
				client := b.client(liteon, defaults)
				state, err := client.ResetManager(t.Context(), false)
				require.NoError(t, err)
				b.on(tasksURI, reply(503, ""), ok(list(c.after)))
				started := time.Now()
				got, err := client.WaitManager(t.Context(), state)
				require.NoError(t, err)
				require.Equal(t, c.want, got)
				if c.want == redfish.RestartTasks {
					require.Equal(t, 30*time.Second, time.Since(started), "an unreadable list proves nothing")
				}
			})
		})
	}
}

func TestShelfActivationAsSteps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := controller(t, ok(`{"Id":"bmc",`+resettable+`}`))
		defer b.close()
		b.on("/redfish/v1", cut, ok(`{}`))
		c := b.client(liteon, defaults)
		state := &redfish.ActivationState{Force: true}
		require.NoError(t, c.Activate(t.Context(), state, nil))
		require.Equal(t, []string{"ForceRestart"}, b.changes())
		require.True(t, state.Manager.Accepted)
		require.Error(t, c.RunStep(t.Context(), redfish.StepWaitManager, nil))
		require.Error(t, c.RunStep(t.Context(), "dance", nil))
	})
}

// resetParameter is how a manager describes its reset and answers it, and what it
// should get.
type resetParameter struct {
	name, action string
	post         []http.HandlerFunc
	bodies       []string
	fails        bool
}

func (p resetParameter) test(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := controller(t, ok(`{"Id":"bmc","Actions":{"#Manager.Reset":`+p.action+`}}`))
		defer b.close()
		b.on("/info", ok(`{"Parameters":[{"Name":"ResetType","AllowableValues":["ForceRestart","None"]}]}`))
		b.on("POST /mreset", p.post...)
		_, err := b.client(liteon, defaults).ResetManager(t.Context(), false)
		require.Equal(t, p.fails, err != nil)
		var bodies []string
		for _, post := range b.requests("POST", "/mreset") {
			bodies = append(bodies, post.body)
		}
		require.Equal(t, p.bodies, bodies)
	})
}

func TestF4ManagerResetWithoutParameters(t *testing.T) {
	t.Parallel()
	for _, p := range []resetParameter{
		{"takes no parameter", `{"target":"/mreset"}`, []http.HandlerFunc{reply(400, ""), reply(200, "")}, []string{`{"ResetType":"GracefulRestart"}`, `{}`}, false},
		{"takes no body", `{"target":"/mreset"}`, []http.HandlerFunc{reply(400, ""), reply(400, ""), reply(200, "")}, []string{`{"ResetType":"GracefulRestart"}`, `{}`, ``}, false},
		{"a refusal for its state is believed", `{"target":"/mreset"}`, []http.HandlerFunc{refuse(400, "Base.1.8.ResourceInUse", "updating")}, []string{`{"ResetType":"GracefulRestart"}`}, true},
		{"a refused value is believed", `{"target":"/mreset","@Redfish.ActionInfo":"/info"}`, []http.HandlerFunc{reply(400, "")}, []string{`{"ResetType":"ForceRestart"}`}, true},
	} {
		t.Run(p.name, p.test)
	}
}

func TestF5ManagerResetTakesAnAdvertisedValue(t *testing.T) {
	t.Parallel()
	for _, p := range []resetParameter{
		{"values in place", `{"target":"/mreset","ResetType@Redfish.AllowableValues":["ForceRestart"]}`, []http.HandlerFunc{reply(204, "")}, []string{`{"ResetType":"ForceRestart"}`}, false},
		{"values in ActionInfo", `{"target":"/mreset","@Redfish.ActionInfo":"/info"}`, []http.HandlerFunc{reply(204, "")}, []string{`{"ResetType":"ForceRestart"}`}, false},
		{"ActionInfo as a link object", `{"target":"/mreset","@Redfish.ActionInfo":{"@odata.id":"/info"}}`, []http.HandlerFunc{reply(204, "")}, []string{`{"ResetType":"ForceRestart"}`}, false},
		{"no values at all", `{"target":"/mreset","@Redfish.ActionInfo":"/gone"}`, []http.HandlerFunc{reply(204, "")}, []string{`{"ResetType":"GracefulRestart"}`}, false},
	} {
		t.Run(p.name, p.test)
	}
}

func TestNoManagerToReset(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := controller(t, ok(`{}`))
		defer b.close()
		_, err := b.client(liteon, defaults).ResetManager(t.Context(), false)
		require.ErrorIs(t, err, redfish.ErrNoAction)
	})
}

func TestWaitsEndWithTheirContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newTray(t)
		defer x.close()
		c := x.client(gb200, defaults)
		for _, step := range []redfish.Step{redfish.StepWaitOff, redfish.StepPauseOff, redfish.StepAuxSettle, redfish.StepWaitBMC} {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			started := time.Now()
			err := c.RunStep(ctx, step, nil)
			require.ErrorIs(t, err, context.DeadlineExceeded, step)
			require.Equal(t, 3*time.Second, time.Since(started), step)
			cancel()
		}
	})
}
