// SPDX-License-Identifier: Apache-2.0

package diagnostics

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/job"
)

// unpack reads a bundle, in order.
func unpack(t *testing.T, raw []byte) (names []string, files map[string]string) {
	t.Helper()
	gz, err := gzip.NewReader(bytes.NewReader(raw))
	require.NoError(t, err)
	files = map[string]string{}
	for r := tar.NewReader(gz); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names, files
		}
		require.NoError(t, err)
		content, err := io.ReadAll(r)
		require.NoError(t, err)
		names, files[h.Name] = append(names, h.Name), string(content)
	}
}

func TestBundleIsBounded(t *testing.T) {
	var out bytes.Buffer
	b := NewBundle(&out, Limits{File: 100, Total: 250}, now)
	s := b.Sink("c")
	require.NoError(t, s.Text("a.txt", "short"))
	require.NoError(t, s.Text("long.txt", strings.Repeat("x", 1000)))
	require.NoError(t, s.JSON("doc.json", map[string]string{"key": strings.Repeat("y", 500)}))
	require.NoError(t, s.Text("late.txt", "no room"))
	for _, name := range []string{"", "../x", "/x", "a/../b", ManifestName, "a.txt"} {
		require.ErrorIs(t, s.Text(name, "x"), errName, name)
	}
	m := &Manifest{Version: 1}
	require.NoError(t, b.Close(m))
	names, files := unpack(t, out.Bytes())
	require.Equal(t, []string{"a.txt", "long.txt", "doc.json", ManifestName}, names)
	require.Contains(t, files["long.txt"], "[cut here: 100 of 1000 bytes]")
	require.Len(t, m.Files, 4)
	require.False(t, m.Files[0].Truncated)
	require.True(t, m.Files[1].Truncated)
	require.Equal(t, int64(1000), m.Files[1].OriginalSize)
	require.True(t, m.Files[3].Omitted)
	require.Zero(t, m.Files[3].Size)
	require.Equal(t, strings.Repeat("y", 500), b.Evidence()["doc.json"].(map[string]any)["key"], "rules see all of it")
	var inside Manifest
	require.NoError(t, json.Unmarshal([]byte(files[ManifestName]), &inside))
	require.Equal(t, m.Files, inside.Files)
	require.Nil(t, inside.Bundle, "a bundle cannot hold its own digest")
	_, err := ParseManifest([]byte(files[ManifestName]))
	require.Error(t, err)
}

func TestSecretsAreMasked(t *testing.T) {
	const secret = "hunter2"
	for name, v := range map[string]any{
		"password":       map[string]any{"Password": secret},
		"session token":  map[string]any{"SessionToken": secret},
		"auth header":    map[string]any{"X-Auth-Token": secret},
		"camel case":     map[string]any{"ClientPrivateKey": secret},
		"number":         map[string]any{"Passphrase": json.Number("4711")},
		"below":          map[string]any{"Credentials": map[string]any{"Value": []any{secret}}},
		"community":      map[string]any{"CommunityStrings": []any{map[string]any{"CommunityString": secret}}},
		"in a text":      map[string]any{"Message": "login with password=" + secret},
		"url":            map[string]any{"ImageURI": "https://user:" + secret + "@host/x"},
		"JSON in a text": map[string]any{"Message": `{"password":"` + secret + `"}`},
		"key":            map[string]any{"Text": "-----BEGIN EC PRIVATE KEY-----\n" + secret + "\n-----END EC PRIVATE KEY-----"},
		"cut key":        map[string]any{"Text": "-----BEGIN PRIVATE KEY-----\n" + secret},
		"named key":      map[string]any{"Text": "private_key: -----BEGIN PRIVATE KEY-----\n" + secret + "\n-----END PRIVATE KEY-----"},
		"preshared key":  map[string]any{"pre-shared-key": secret},
		"access key":     map[string]any{"SecretAccessKey": secret},
		"community key":  map[string]any{"readonly-community": map[string]any{secret: map[string]any{"access": "any"}, "x": map[string]any{}}},
		"pair":           []any{map[string]any{"Name": "AdminPassword", "CurrentValue": secret, "Value": secret}},
		"bearer":         map[string]any{"Message": "sent header Bearer " + secret + "-abcdefgh-4711 to host"},
		"basic":          map[string]any{"Message": "sent Basic cm9vdDpodW50ZXIyNDcxMQ== to host"},
		"signed URL":     map[string]any{"image_url": "https://host/x?temp_url_expires=1&temp_url_sig=" + secret + "&y=1"},
		"SNMP account":   map[string]any{"SNMP": map[string]any{"AuthenticationKey": secret}},
		"curl":           map[string]any{"Message": "sudo: root : COMMAND=/usr/bin/curl -k -u root:" + secret + " https://bmc/redfish/v1"},
		"ipmitool":       map[string]any{"Message": "ipmitool -H bmc -p 623 -U root -P " + secret + " chassis status"},
		"sshpass":        map[string]any{"Message": "sshpass -p '" + secret + " x' ssh root@host"},
		"tabs":           map[string]any{"Message": "curl\t-u root:" + secret + "\thttps://bmc"},
		"long option":    map[string]any{"Message": "tool --password " + secret + " run"},
		"signed URL AWS": map[string]any{"Uri": "https://host/x?X-Amz-Signature=" + secret},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			b := NewBundle(&out, Limits{File: 1 << 20, Total: 1 << 20}, now)
			require.NoError(t, b.Sink("c").JSON("x.json", v))
			require.NoError(t, b.Close(&Manifest{}))
			_, files := unpack(t, out.Bytes())
			require.NotContains(t, files["x.json"], secret)
			require.NotContains(t, files["x.json"], "4711")
			require.NotContains(t, files["x.json"], "cm9vdDpodW50ZXIyNDcx")
			require.Contains(t, files["x.json"], "XXXX")
		})
	}
	kept := `{"@odata.id":"/redfish/v1/Sessions/1","Passwords":{"@odata.id":"/x"},"PasswordChangeRequired":false,"Reading":12.50,"Uuid":"a-b"}`
	doc, err := decodeMasked([]byte(kept))
	require.NoError(t, err)
	again, err := json.Marshal(doc)
	require.NoError(t, err)
	require.JSONEq(t, kept, string(again))
	require.Contains(t, string(again), "12.50", "numbers keep their digits")
	for _, plain := range []string{
		"a -----BEGIN CERTIFICATE-----\nx b", "Basic authentication failed, bearer of bad news", "failure_signature=UNCLASSIFIED", "https://h/x?assign=1&signal=2",
		"ssh -p 22 host", "ipmitool -p 623 sel list", "curl -k https://h", "a - b", "fan-password-less --quiet",
	} {
		require.Equal(t, plain, MaskText(plain))
	}
}

func TestChanges(t *testing.T) {
	before := Fingerprint{"power.state": "ON", "power.reset": "1"}
	require.Empty(t, before.Changes(Fingerprint{"power.state": "ON", "power.reset": "1"}))
	require.Equal(t, []string{
		`ironic.state: "manageable", was not told`, `power.reset: not told, was "1"`, `power.state: "OFF", was "ON"`,
	}, before.Changes(Fingerprint{"power.state": "OFF", "ironic.state": "manageable"}))
}

// watching is a collector that tells a state, or waits for the end of its time.
type watching struct {
	scripted
	state Fingerprint
}

func (w watching) Fingerprint(ctx context.Context) (Fingerprint, error) {
	if w.state == nil {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return w.state, nil
}

func (w watching) Precondition(ctx context.Context) error {
	<-ctx.Done()
	return &StateError{State: strings.Repeat("x", 1000) + " password=hunter2"}
}

// TestFingerprintIsBounded: what a device tells of its state goes into manifests,
// and must neither fill nor delay them.
func TestFingerprintIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told, err := fingerprint(t.Context(), []Collector{watching{scripted{name: "a"}, Fingerprint{
			"version": strings.Repeat("v", 1<<20), "uuid": "token=hunter2",
		}}}, time.Minute)
		require.NoError(t, err)
		require.LessOrEqual(t, len(told["a.version"]), maxState)
		require.Equal(t, "token=XXXX", told["a.uuid"])

		began := time.Now()
		slow := watching{scripted: scripted{name: "slow"}}
		_, err = fingerprint(t.Context(), []Collector{slow}, time.Minute)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Minute, time.Since(began))

		err = precondition(t.Context(), slow, time.Minute)
		var state *StateError
		require.ErrorAs(t, err, &state)
		require.Equal(t, 2*time.Minute, time.Since(began))
		require.LessOrEqual(t, len(state.Error()), 2*maxState)
		require.NotContains(t, state.Error(), "hunter2")
	})
}

// scripted is a collector that does what a test wants.
type scripted struct {
	name     string
	required bool
	run      func(context.Context, Sink) error
}

func (s scripted) Name() string { return s.name }

func (s scripted) Required() bool { return s.required }

func (s scripted) Collect(ctx context.Context, into Sink) error { return s.run(ctx, into) }

// TestRunnerRunsAll shows that no collector keeps the others from their turn, and
// that a slow one is cut.
func TestRunnerRunsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		b := NewBundle(&out, Limits{File: 1 << 10, Total: 1 << 20}, now)
		collectors := []Collector{
			scripted{"slow", true, func(ctx context.Context, into Sink) error {
				if err := into.Text("slow.txt", "first part"); err != nil {
					return err
				}
				<-ctx.Done()
				return ctx.Err()
			}},
			scripted{"broken", false, func(context.Context, Sink) error { return errors.New("HTTP 500: password=hunter2") }},
			scripted{"absent", true, func(context.Context, Sink) error { return Skip("the node has none") }},
			scripted{"good", true, func(_ context.Context, into Sink) error { return into.JSON("good.json", 1) }},
		}
		outcomes, err := Runner{Limit: time.Minute}.Run(t.Context(), collectors, b)
		require.NoError(t, err)
		require.Len(t, outcomes, 4)
		require.Equal(t, job.CollectorFailed, outcomes[0].Status)
		require.Equal(t, time.Minute, outcomes[0].Duration)
		require.Contains(t, outcomes[0].Message, "not done after 1m0s")
		require.Equal(t, job.CollectorFailed, outcomes[1].Status)
		require.NotContains(t, outcomes[1].Message, "hunter2")
		require.Equal(t, job.CollectorSkipped, outcomes[2].Status)
		require.Equal(t, job.CollectorCollected, outcomes[3].Status)
		require.Equal(t, []job.CollectorOutcome{outcomes[0]}, failedRequired(outcomes))
		require.NoError(t, b.Close(&Manifest{}))
		_, files := unpack(t, out.Bytes())
		require.Equal(t, "first part", files["slow.txt"], "what came before an error is kept")
	})
}

// TestRunnerStops ends a run that may not go on.
func TestRunnerStops(t *testing.T) {
	lost := errors.New("lost")
	last := scripted{"last", false, func(context.Context, Sink) error { t.Error("it must not run"); return nil }}
	b := NewBundle(io.Discard, Limits{File: 1, Total: 1}, now)
	fatal := scripted{"fatal", false, func(context.Context, Sink) error { return lost }}
	_, err := Runner{Limit: time.Minute, Fatal: func(err error) bool { return errors.Is(err, lost) }}.Run(t.Context(), []Collector{fatal, last}, b)
	require.ErrorIs(t, err, lost)

	cut := errors.New("cut")
	ctx, cancel := context.WithCancelCause(t.Context())
	cutter := scripted{"cutter", false, func(context.Context, Sink) error { cancel(cut); return nil }}
	_, err = Runner{Limit: time.Minute}.Run(ctx, []Collector{cutter, last}, b)
	require.ErrorIs(t, err, cut)
}

func TestFilenameIsSafe(t *testing.T) {
	id := job.ID{1}
	require.Equal(t, "diagnostics_rack-1_a-b--c_"+id.String()+".tar.gz", Filename("rack 1", "a/b\"\nc", id))
	require.Less(t, len(Filename(strings.Repeat("r", 500), strings.Repeat("n", 500), id)), 160)
}
