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

const (
	shelvesURI = "/redfish/v1/PowerEquipment/PowerShelves"
	deltaOn    = shelvesURI + "/1/Oem/deltaenergysystems/Actions/PowerShelf.TurnOnPSUs"
	deltaOff   = shelvesURI + "/1/Oem/deltaenergysystems/Actions/PowerShelf.TurnOffPSUs"

	deltaActions = `"Oem":{"deltaenergysystems":{"Actions":{"#PowerShelf.TurnOnPSUs":{"target":"` + deltaOn + `"},
		"#PowerShelf.TurnOffPSUs":{"target":"` + deltaOff + `"}}}}`
	deltaShelfBody = `{"Id":"1","EquipmentType":"PowerShelf",` + deltaActions + `}`
)

// deltaShelves serves the power shelves of a Delta controller; an empty body is
// one that cannot be read.
func (b *bmc) deltaShelves(bodies ...string) {
	var paths []string
	for i, body := range bodies {
		path := shelvesURI + "/" + string(rune('1'+i))
		paths = append(paths, path)
		if body == "" {
			b.on(path, reply(500, ""))
		} else {
			b.on(path, ok(body))
		}
	}
	b.on(shelvesURI, ok(members(paths...)))
}

// deltaChassis serves two chassis of which the second is Delta's.
func (b *bmc) deltaChassis(supplies ...string) {
	const other, own = chassisURI + "/other", chassisURI + "/chassis"
	b.on(chassisURI, ok(members(other, own)))
	b.on(other, ok(`{"PowerSubsystem":{"@odata.id":"/otherPower"}}`))
	b.on(own, ok(`{"Manufacturer":"DELTA","PowerSubsystem":{"@odata.id":"/power"}}`))
	b.on("/otherPower", ok(`{"PowerSupplies":{"@odata.id":"/otherSupplies"}}`))
	b.on("/otherSupplies", ok(members()))
	b.on("/power", ok(`{"PowerSupplies":{"@odata.id":"/supplies"}}`))
	var paths []string
	for i, body := range supplies {
		path := "/supplies/" + string(rune('1'+i))
		paths = append(paths, path)
		if body == "" {
			b.on(path, reply(503, ""))
		} else {
			b.on(path, ok(body))
		}
	}
	b.on("/supplies", ok(members(paths...)))
}

func TestDeltaPowerState(t *testing.T) {
	t.Parallel()
	oem := func(value string) string {
		return `{"PowerState":"On","Oem":{"deltaenergysystems":{"Power":` + value + `}}}`
	}
	for _, c := range []struct {
		name     string
		supplies []string
		want     redfish.PowerState
	}{
		{"all on", []string{oem(`"On"`), oem("true")}, redfish.PowerStateOn},
		{"the OEM member comes first", []string{oem(`"On"`), oem(`"Off"`)}, redfish.PowerStateOff},
		{"else the standard one", []string{`{"PowerState":"On"}`, oem("null")}, redfish.PowerStateOn},
		{"standard one off", []string{oem(`"On"`), `{"PowerState":false}`}, redfish.PowerStateOff},
		{"unreadable are skipped", []string{"", oem(`"On"`)}, redfish.PowerStateOn},
		{"nothing to read", []string{"", `{}`}, redfish.PowerStateUnknown},
		{"no supplies", nil, redfish.PowerStateUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBMC(t)
			b.deltaChassis(c.supplies...)
			got, err := b.client(delta).PowerState(t.Context())
			require.NoError(t, err)
			require.Equal(t, c.want, got.State)
			require.Empty(t, b.requests("GET", "/otherPower"))
		})
	}
}

func TestDeltaChassisLookup(t *testing.T) {
	t.Parallel()
	b := newBMC(t)
	b.deltaChassis(`{"PowerState":"On"}`)
	c := b.client(delta)
	for range 3 {
		_, err := c.PowerState(t.Context())
		require.NoError(t, err)
	}
	require.Len(t, b.requests("GET", chassisURI+"/other"), 1, "it is looked up once")

	// Without the mark the first with supplies will do, and one that cannot be
	// read is stepped over.
	b.on(chassisURI+"/other", reply(500, ""))
	b.on(chassisURI+"/chassis", ok(`{"PowerSubsystem":{"@odata.id":"/power"}}`))
	got, err := b.client(delta).PowerState(t.Context())
	require.NoError(t, err)
	require.Equal(t, redfish.PowerStateOn, got.State)

	b.on(chassisURI+"/other", ok(`{}`))
	b.on(chassisURI+"/chassis", ok(`{"Oem":{"DeltaX":{}}}`))
	_, err = b.client(delta).PowerState(t.Context())
	require.Equal(t, redfish.CodeInternal, redfish.CodeOf(err))
}

func TestDeltaShelfLookup(t *testing.T) {
	t.Parallel()
	const half = `{"EquipmentType":"PowerShelf","Manufacturer":"Delta","Oem":{"deltaenergysystems":{"Actions":{"#PowerShelf.TurnOnPSUs":{"target":"/wrong"}}}}}`
	elsewhere := `{"Name":"Rack PDU","Oem":{"deltaenergysystems":{"Actions":{"#PowerShelf.TurnOnPSUs":{"target":"/any"},"#PowerShelf.TurnOffPSUs":{"target":"/anyOff"}}}}}`
	for _, c := range []struct {
		name    string
		shelves []string
		path    string
	}{
		{"by equipment type", []string{half, elsewhere, deltaShelfBody}, deltaOn},
		{"by name", []string{elsewhere, `{"Name":"GB300 Power Shelf",` + deltaActions + `}`}, deltaOn},
		{"any with both actions", []string{half, "", elsewhere}, "/any"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBMC(t)
			b.deltaShelves(c.shelves...)
			b.on("POST "+c.path, reply(200, `{}`))
			require.NoError(t, b.client(delta).Power(t.Context(), redfish.PowerOn))
			posts := b.requests("POST", "/")
			require.Len(t, posts, 1)
			require.Equal(t, c.path, posts[0].path)
		})
	}
	b := newBMC(t)
	b.deltaShelves(half)
	err := b.client(delta).Power(t.Context(), redfish.PowerOff)
	require.ErrorIs(t, err, redfish.ErrNoAction)
	require.Equal(t, redfish.CodeInternal, redfish.CodeOf(err))
	b.deltaShelves(half, "")
	require.Equal(t, 500, asError(t, b.client(delta).Power(t.Context(), redfish.PowerOff)).Status, "it may be the one that could not be read")
	b.deltaShelves(`{"EquipmentType":"PowerShelf","Oem":{"deltaenergysystems":{"Actions":{"#PowerShelf.TurnOnPSUs":{"target":"https://evil.example/on"},"#PowerShelf.TurnOffPSUs":{"target":"/off"}}}}}`)
	require.Equal(t, redfish.CodeInvalidArgument, redfish.CodeOf(b.client(delta).Power(t.Context(), redfish.PowerOn)))
	require.Empty(t, b.requests("POST", "/"))
}

func TestDeltaActivationRestartsItsController(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const pmc = "/redfish/v1/Managers/PMC_0"
		b := newPipeBMC(t)
		defer b.close()
		b.on("/redfish/v1", cut, ok(`{}`))
		b.on("/redfish/v1/Managers", ok(members(pmc)))
		b.on("GET "+pmc, ok(`{"Id":"PMC_0",`+resettable+`}`))
		b.on("POST /mreset", reply(204, ""))
		started := time.Now()
		require.NoError(t, b.client(delta, defaults).Activate(t.Context(), nil, nil))
		require.Equal(t, 30*time.Second, time.Since(started))
		require.Len(t, b.requests(http.MethodPost, "/mreset"), 1)
	})
}
