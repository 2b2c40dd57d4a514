// SPDX-License-Identifier: Apache-2.0

package redfish_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/redfish"
	"github.com/rackbus/rackbus/pkg/secret"
)

// Tests here and elsewhere in this package are named after public field reports:
// F rows are about the protocol, G rows about credentials, H rows about power.

// F3: a link is a string, an object, or a list of either.
func TestF3LinksComeInEveryShape(t *testing.T) {
	t.Parallel()
	for shape, link := range map[string]string{
		"object":      `{"@odata.id":"/redfish/v1/S/P"}`,
		"string":      `"/redfish/v1/S/P"`,
		"href":        `{"href":"/redfish/v1/S/P"}`,
		"list":        `[{"@odata.id":"/redfish/v1/S/P"}]`,
		"string list": `["/redfish/v1/S/P"]`,
		"odd list":    `[null,7,{"x":1},"/redfish/v1/S/P"]`,
	} {
		t.Run(shape, func(t *testing.T) {
			b := newBMC(t)
			b.on("/redfish/v1/Systems", ok(`{"Members":[`+strings.Trim(strings.ReplaceAll(link, "/S/P", "/S"), "[]")+`]}`))
			b.on("/redfish/v1/S", ok(`{"Processors":`+link+`}`))
			b.on("/redfish/v1/S/P", ok(`{"Members":`+strings.ReplaceAll(link, "/S/P", "/S/P/0")+`}`))
			b.on("/redfish/v1/S/P/0", ok(`{"Oem":{"Nvidia":{"MNNVLinkTopology":{"TraySlotNumber":3}}}}`))
			info, err := b.client(gb200).DeviceInfo(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, 3, *info.SlotNumber)
		})
	}
}

// F9: a job that the POST has just named answers 404 for a while.
func TestF9NewTaskMayAnswer404AtFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		missing := reply(404, "")
		result, took, looks := waitTask(t, redfish.TaskByID("7"), redfish.PollOptions{}, missing, missing, task("Completed", "OK", "100", ""))
		require.Equal(t, redfish.TaskFinished, result.Outcome)
		require.Equal(t, 20*time.Second, took)
		require.Equal(t, 3, looks)
	})
	synctest.Test(t, func(t *testing.T) {
		result, took, looks := waitTask(t, redfish.TaskByID("7"), redfish.PollOptions{}, reply(404, ""))
		require.Equal(t, redfish.TaskGone, result.Outcome)
		require.Equal(t, 30*time.Second, took)
		require.Equal(t, 4, looks, "three retries, then it is believed")
	})
}

// F11: a device whose compressed answers are broken.
func TestF11BrokenCompressionIsNeverAskedFor(t *testing.T) {
	t.Parallel()
	b := newBMC(t)
	b.on(systemURI, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write([]byte("not gzip"))
			return
		}
		ok(`{"Id":"System_0","PowerState":"On"}`)(w, r)
	})
	got, err := b.client(gb200).PowerState(t.Context())
	require.NoError(t, err)
	require.Equal(t, redfish.PowerStateOn, got.State)
}

// F12: a silent device costs its own request and nobody else's.
func TestF12SilentDeviceDoesNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	b := newBMC(t)
	other := newBMC(t)
	b.on(systemURI, hang)
	other.system(`"On"`)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	silent := b.client(gb200, func(o *redfish.Options) { o.Pool = other.pool })
	go func() {
		_, err := silent.PowerState(ctx)
		over <- err
	}()
	require.Eventually(t, func() bool { return len(b.requests("GET", systemURI)) == 1 }, 20*time.Second, time.Millisecond)
	for range 20 {
		_, err := other.client(gb200).PowerState(t.Context())
		require.NoError(t, err)
	}
	cancel()
	require.Equal(t, redfish.CodeCanceled, redfish.CodeOf(<-over))
}

// everything calls what a job and the queries call, and gives the errors.
func everything(ctx context.Context, c *redfish.Client) []error {
	var errs []error
	note := func(err error) { errs = append(errs, err) }
	_, err := c.PowerState(ctx)
	note(err)
	note(c.Power(ctx, redfish.PowerOn))
	_, err = c.DeviceInfo(ctx)
	note(err)
	_, err = c.FirmwareInventory(ctx)
	note(err)
	service, err := c.UpdateService(ctx)
	note(err)
	if err == nil {
		_, err = c.Upload(ctx, service, image(64))
		note(err)
	}
	_, err = c.Task(ctx, redfish.TaskByID("7"))
	note(err)
	return errs
}

// worksWell is a tray on which everything succeeds.
func worksWell(t *testing.T) *bmc {
	b := newBMC(t)
	b.topology(`{"MNNVLinkTopology":{"TraySlotNumber":3}}`)
	b.system(`"On"`)
	b.on("POST "+resetURI, reply(204, ""))
	b.on(inventoryURI, ok(members(inventoryURI+"/a")))
	b.on(inventoryURI+"/a", ok(`{"Id":"a","Version":"1"}`))
	b.updateService(`{"MultipartHttpPushUri":"` + multipartURI + `"}`)
	b.on("POST "+multipartURI, reply(202, taskBody))
	b.on(tasksURI+"/7", task("Completed", "OK", "100", ""))
	return b
}

// G1: session slots run out. Rackbus takes none: every request carries Basic
// credentials of its own.
func TestG1NoSessionIsEverOpened(t *testing.T) {
	t.Parallel()
	b := worksWell(t)
	var sessions atomic.Int32
	b.on("/redfish/v1/SessionService/Sessions", func(w http.ResponseWriter, _ *http.Request) {
		sessions.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	done := make(chan []error)
	const jobs = 10
	for range jobs {
		go func() { done <- everything(context.WithoutCancel(t.Context()), b.client(gb200)) }()
	}
	for range jobs {
		for _, err := range <-done {
			require.NoError(t, err)
		}
	}
	require.Zero(t, sessions.Load())
	for _, s := range b.requests("", "/") {
		require.NotContains(t, s.path, "Session")
		require.Empty(t, s.header.Get("X-Auth-Token"))
		require.Empty(t, s.header.Get("Cookie"))
		require.True(t, strings.HasPrefix(s.header.Get("Authorization"), "Basic "))
	}
}

// G3: credentials that stop being accepted in the middle of a job end it, with
// the reason and at once. A broken connection is no matter of credentials.
func TestG3RefusedInTheMiddleOfAJob(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newPipeBMC(t)
		defer b.close()
		b.on(tasksURI+"/7", task("Running", "OK", "10", ""), cut, reply(503, ""), task("Running", "OK", "20", ""), refuse(401, "Base.1.18.NoValidSession", "no"))
		started := time.Now()
		result, err := b.client(gb200, defaults).WaitTask(t.Context(), redfish.TaskByID("7"), redfish.PollOptions{})
		e := asError(t, err)
		require.True(t, e.CredentialFault())
		require.Equal(t, redfish.CodeUnauthenticated, e.Code)
		require.Equal(t, "Base.1.18.NoValidSession", e.MessageID)
		require.Equal(t, 20, result.Task.Percent, "the last good look is kept")
		require.Equal(t, 20*time.Second, time.Since(started))
		require.Len(t, b.requests("GET", "/"), 5, "no other way of logging in is tried")

		b.on(tasksURI+"/7", cut)
		_, err = b.client(gb200, defaults).Task(t.Context(), redfish.TaskByID("7"))
		require.False(t, asError(t, err).CredentialFault())
		require.True(t, asError(t, err).Transient())
	})
}

// G4: a changed password makes every request fail, each of them once: repeating
// it would lock the account.
func TestG4RefusedCredentialsAreNotTriedAgain(t *testing.T) {
	t.Parallel()
	b := newBMC(t)
	for _, route := range []string{systemURI, inventoryURI, updateURI, tasksURI + "/7", "/redfish/v1/Systems", shelfURI, chassisURI, unitsURI} {
		b.on(route, refuse(401, "Base.1.18.InsufficientPrivilege", "no"))
	}
	for _, nodeType := range redfish.NodeTypes() {
		before := len(b.requests("", "/"))
		errs := everything(t.Context(), b.client(nodeType))
		for _, err := range errs {
			if asError(t, err).Code != redfish.CodeNotFound {
				require.Truef(t, asError(t, err).CredentialFault(), "%s: %v", nodeType, err)
				require.False(t, asError(t, err).Transient())
			}
		}
		require.LessOrEqual(t, len(b.requests("", "/"))-before, len(errs), nodeType)
	}
}

// G5: credentials changed in the request are used from the first request on, also
// over a connection that the old ones have opened.
func TestG5ChangedCredentialsAreUsedAtOnce(t *testing.T) {
	t.Parallel()
	b := newBMC(t)
	var accepted atomic.Value
	accepted.Store(planted)
	b.on(systemURI, func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != accepted.Load() {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		ok(`{"Id":"System_0","PowerState":"On"}`)(w, r)
	})
	_, err := b.client(gb200).PowerState(t.Context())
	require.NoError(t, err)
	accepted.Store("rotated")
	_, err = b.client(gb200).PowerState(t.Context())
	require.True(t, asError(t, err).CredentialFault())
	b.endpoint.Password = secret.New("rotated")
	_, err = b.client(gb200).PowerState(t.Context())
	require.NoError(t, err)
	require.Len(t, b.requests("GET", systemURI), 3)
}

// G6: a refusal leaves nothing stale behind; the same client works again as soon
// as the device does, without a login.
func TestG6RefusalLeavesNothingStale(t *testing.T) {
	t.Parallel()
	b := newBMC(t)
	b.on(systemURI, ok(`{"Id":"System_0","PowerState":"On"}`), reply(401, ""), ok(`{"Id":"System_0","PowerState":"Off"}`))
	c := b.client(gb200)
	for _, refused := range []bool{false, true, false} {
		_, err := c.PowerState(t.Context())
		require.Equal(t, refused, err != nil)
	}
	require.Len(t, b.requests("", "/"), 3)
}

// G8: missing credentials are told in clear words before anything is sent, and
// the next request may bring them.
func TestG8MissingCredentialsAreToldAtOnce(t *testing.T) {
	t.Parallel()
	b := newBMC(t)
	b.system(`"On"`)
	e := b.endpoint
	e.Password = secret.Value{}
	_, err := redfish.New(e, redfish.Options{Profile: profile(t, gb200), Pool: b.pool})
	require.Equal(t, redfish.CodeInvalidArgument, redfish.CodeOf(err))
	require.ErrorContains(t, err, "BMC credentials are required")
	require.Empty(t, b.requests("", "/"))
	_, err = b.client(gb200).PowerState(t.Context())
	require.NoError(t, err)
}

// G9: a job at debug level, on a device that echoes what it was sent.
func TestG9PasswordIsNowhere(t *testing.T) {
	t.Parallel()
	b := worksWell(t)
	echo := func(w http.ResponseWriter, r *http.Request) {
		refuse(500, "Base.1.18.Echo "+planted, planted+" "+r.Header.Get("Authorization"))(w, r)
	}
	var log bytes.Buffer
	c := b.client(gb200, func(o *redfish.Options) {
		o.Logger = slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	texts := fmt.Sprintf("%+v %#v", b.endpoint, b.endpoint)
	for _, round := range []string{"well", "echo"} {
		if round == "echo" {
			for _, route := range []string{systemURI, "POST " + multipartURI, inventoryURI + "/a", tasksURI + "/7", resetURI} {
				b.on(route, echo)
			}
		}
		for _, err := range everything(t.Context(), c) {
			texts += fmt.Sprintf("%v %+v %#v\n", err, err, err)
		}
	}
	require.NotEmpty(t, log.String())
	for _, hidden := range []string{planted, "YWRtaW46"} {
		require.NotContains(t, log.String(), hidden)
		require.NotContains(t, texts, hidden)
	}
}

// H4: a power-on is accepted and ignored.
func TestH4IgnoredPowerOnFailsWithTheLastState(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newTray(t)
		defer x.close()
		x.power.Store("Off")
		x.ignoreOn.Store(1000)
		c := x.client(gb200, defaults)
		require.NoError(t, c.Power(t.Context(), redfish.PowerOn), "accepted")
		started := time.Now()
		err := c.RunStep(t.Context(), redfish.StepWaitOn, nil)
		require.ErrorIs(t, err, redfish.ErrPowerState)
		require.ErrorContains(t, err, "last read OFF")
		require.LessOrEqual(t, time.Since(started), time.Minute)
	})
}

// H5: the AUX cycle is not sent in a loop at a host that is on; the activation
// takes the host down first and sends it once.
func TestH5AuxCycleComesAfterTheHostIsOff(t *testing.T) {
	t.Parallel()
	for _, nodeType := range []string{gb200, wiwynn, gb300, lenovo, supermicro, vrnvl72} {
		synctest.Test(t, func(t *testing.T) {
			x := newTray(t)
			defer x.close()
			require.NoError(t, x.client(nodeType, defaults).Activate(t.Context(), nil, nil))
			require.Equal(t, []string{"ForceOff", "AuxPowerCycle", "On"}, x.changes(), nodeType)
		})
	}
}

// H7: a transition is neither on nor off, however long it lasts, and is told as
// what it is.
func TestH7TransitionIsUnknownWithItsReason(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{"PoweringOn", "PoweringOff", "Paused"} {
		b := newBMC(t)
		b.system(`"` + raw + `"`)
		got, err := b.client(gb200).PowerState(t.Context())
		require.NoError(t, err)
		require.Equal(t, redfish.PowerStateUnknown, got.State)
		require.EqualValues(t, raw, got.Raw)
	}
}

// H8: a refused reset is the answer, not a reason to wait.
func TestH8RefusalOfAnActivationStepSurfacesAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newTray(t)
		defer x.close()
		x.on("POST "+resetURI, refuse(400, "Base.1.18.ActionParameterNotSupported", "no"))
		started := time.Now()
		err := x.client(gb300, defaults).Activate(t.Context(), nil, nil)
		require.Equal(t, "Base.1.18.ActionParameterNotSupported", asError(t, err).MessageID)
		require.Less(t, time.Since(started), 3*time.Second)
		require.Len(t, x.requests("POST", "/"), 1)
	})
}
