// SPDX-License-Identifier: Apache-2.0

package redfish_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/redfish"
)

var errLapsed = errors.New("hold lapsed")

// hold is a guard that a test can take away.
type hold struct {
	mu     sync.Mutex
	checks int
	// allow is how many checks succeed; negative for all.
	allow int
	lost  context.Context
}

func (h *hold) Check() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checks++
	if h.allow >= 0 && h.checks > h.allow {
		return errLapsed
	}
	return nil
}

// lapse makes every later check fail.
func (h *hold) lapse() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.allow = h.checks
}

func (h *hold) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.checks
}

func (h *hold) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	if h.lost == nil {
		return ctx, func() { cancel(nil) }
	}
	stop := context.AfterFunc(h.lost, func() { cancel(errLapsed) })
	return ctx, func() { stop(); cancel(nil) }
}

func guarded(g redfish.Guard) func(*redfish.Options) {
	return func(o *redfish.Options) { o.Guard = g }
}

func TestNothingIsSentWithoutTheHold(t *testing.T) {
	t.Parallel()
	b := newBMC(t)
	b.system(`"On"`)
	b.on("POST "+resetURI, reply(204, ""))
	for name, g := range map[string]redfish.Guard{"lapsed": &hold{}, "none given": nil} {
		t.Run(name, func(t *testing.T) {
			c := b.client(gb200, guarded(g))
			_, err := c.PowerState(t.Context())
			require.NoError(t, err, "reading needs no hold")
			err = c.Power(t.Context(), redfish.PowerOn)
			require.ErrorIs(t, err, redfish.ErrNotHeld)
			e := asError(t, err)
			require.False(t, e.Sent)
			require.False(t, e.OutcomeUnknown())
			require.Equal(t, redfish.CodeFailedPrecondition, e.Code)
		})
	}
	require.Empty(t, b.requests("POST", "/"))
}

func TestTheHoldIsAskedAgainAfterTheHandshake(t *testing.T) {
	t.Parallel()
	b := newBMC(t)
	b.system(`"On"`)
	g := &hold{allow: 1}
	err := b.client(gb200, guarded(g)).Power(t.Context(), redfish.PowerOn)
	require.ErrorIs(t, err, redfish.ErrNotHeld)
	require.False(t, asError(t, err).Sent)
	require.Equal(t, 2, g.count())
	require.Empty(t, b.requests("POST", "/"))
}

func TestTheHoldIsAskedBeforeEveryChunk(t *testing.T) {
	t.Parallel()
	b := newBMC(t)
	b.on(updateURI, ok(`{"MultipartHttpPushUri":"`+multipartURI+`"}`))
	b.on("POST "+multipartURI, reply(202, `{"Id":"1","TaskState":"New"}`))
	const size = 3 << 20
	image := bytes.Repeat([]byte("f"), size)
	g := &hold{allow: -1}
	c := b.client(gb200, guarded(g))
	svc, err := c.UpdateService(t.Context())
	require.NoError(t, err)
	upload := redfish.UploadRequest{File: bytes.NewReader(image), Size: size, Name: "fw.bin"}
	_, err = c.Upload(t.Context(), svc, upload)
	require.NoError(t, err)
	require.GreaterOrEqual(t, g.count(), size/(256<<10))

	g = &hold{allow: g.count() / 2}
	before := len(b.requests("POST", multipartURI))
	c = b.client(gb200, guarded(g))
	_, err = c.Upload(t.Context(), svc, upload)
	require.ErrorIs(t, err, redfish.ErrNotHeld)
	require.True(t, asError(t, err).OutcomeUnknown())
	b.srv.CloseClientConnections()
	for _, got := range b.requests("POST", multipartURI)[before:] {
		require.Less(t, len(got.body), size)
	}
}

func TestALostHoldCutsTheRequest(t *testing.T) {
	t.Parallel()
	b := newBMC(t)
	b.system(`"On"`)
	lost, lose := context.WithCancel(t.Context())
	b.on("POST "+resetURI, func(_ http.ResponseWriter, r *http.Request) {
		lose()
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	err := b.client(gb200, guarded(&hold{allow: -1, lost: lost})).Power(t.Context(), redfish.PowerOn)
	require.ErrorIs(t, err, redfish.ErrNotHeld)
	require.ErrorIs(t, err, errLapsed)
	e := asError(t, err)
	require.True(t, e.Sent)
	require.True(t, e.OutcomeUnknown())
}

func TestRedirectedChangesAskTheHoldAgain(t *testing.T) {
	t.Parallel()
	b := newBMC(t)
	b.system(`"On"`)
	g := &hold{allow: -1}
	b.on("POST "+resetURI, func(w http.ResponseWriter, r *http.Request) {
		g.lapse()
		reply(307, "", "Location", resetURI+"/")(w, r)
	})
	b.on("POST "+resetURI+"/", reply(204, ""))
	err := b.client(gb200, guarded(g)).Power(t.Context(), redfish.PowerOn)
	require.ErrorIs(t, err, redfish.ErrNotHeld)
	require.Len(t, b.requests("POST", resetURI), 1, "the second hop was not sent")
}
