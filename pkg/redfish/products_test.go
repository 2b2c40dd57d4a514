// SPDX-License-Identifier: Apache-2.0

package redfish_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/redfish"
)

const (
	wiwynn     = "compute_gb200_wiwynn"
	lenovo     = "compute_gb300_lenovo"
	supermicro = "compute_gb300_supermicro"
	vrnvl72    = "compute_vrnvl72_nvidia"
	delta      = "powershelf_gb200_delta"
)

// trays and shelves are the node types of each kind, from the table of node types.
func typesOf(family node.Family) []string {
	var ids []string
	for _, t := range node.Types() {
		if t.Family == family {
			ids = append(ids, t.ID)
		}
	}
	return ids
}

// A node type that is added to pkg/product has to have a whole profile.
func TestEveryNodeTypeHasACompleteProfile(t *testing.T) {
	t.Parallel()
	require.ElementsMatch(t, append(typesOf(node.FamilyCompute), typesOf(node.FamilyPowerShelf)...), redfish.NodeTypes())
	kinds := map[node.Family]redfish.Kind{node.FamilyCompute: redfish.KindCompute, node.FamilyPowerShelf: redfish.KindPowerShelf}
	for family, kind := range kinds {
		for _, id := range typesOf(family) {
			p := profile(t, id)
			require.NoError(t, p.Validate(), id)
			require.Equal(t, kind, p.Kind, id)
			require.Equal(t, id, p.NodeType)
			if kind == redfish.KindPowerShelf {
				require.EqualValues(t, redfish.ShelfApplyTime, p.ApplyTime, id)
			}
		}
	}
	_, found := redfish.LookupProfile("compute_gb200_unknown")
	require.False(t, found)
}

// Vendors are named in files of their own, nowhere else.
func TestVendorsAreNamedOnlyInTheirFiles(t *testing.T) {
	t.Parallel()
	vendors := regexp.MustCompile(`(?i)lite-?on|delta|lenovo|supermicro|wiwynn`)
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, name := range files {
		if vendors.MatchString(name) || strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			if literal, is := n.(*ast.BasicLit); is && literal.Kind == token.STRING {
				require.NotRegexp(t, vendors, literal.Value, name)
			}
			return true
		})
	}
}

func TestIncompleteProfileIsRefused(t *testing.T) {
	t.Parallel()
	for field, spoil := range map[string]func(*redfish.Profile){
		"NodeType":         func(p *redfish.Profile) { p.NodeType = "" },
		"Kind":             func(p *redfish.Profile) { p.Kind = "" },
		"SystemID":         func(p *redfish.Profile) { p.SystemID = "" },
		"BMCID":            func(p *redfish.Profile) { p.BMCID = "" },
		"WriteProtectPath": func(p *redfish.Profile) { p.WriteProtectPath = "" },
		"Power":            func(p *redfish.Profile) { p.Power = "dance" },
		"TaskLimit":        func(p *redfish.Profile) { p.TaskLimit = 0 },
		"Activation":       func(p *redfish.Profile) { p.Activation.Steps = nil },
	} {
		p := profile(t, gb200)
		spoil(&p)
		require.ErrorContains(t, p.Validate(), field)
		_, err := redfish.New(redfish.Endpoint{}, redfish.Options{Profile: p})
		require.Equal(t, redfish.CodeInvalidArgument, redfish.CodeOf(err), field)
	}
	shelf := profile(t, liteon)
	shelf.ChassisPrefix, shelf.ApplyTime = "", ""
	require.ErrorContains(t, shelf.Validate(), "ApplyTime, ChassisPrefix")
}

// Every type, every operation: what the device gets, or that it gets nothing.
func TestPowerOperationsOfEveryType(t *testing.T) {
	t.Parallel()
	type sent struct{ path, body string }
	operations := []redfish.PowerOp{redfish.PowerOff, redfish.PowerOn, redfish.PowerReset, redfish.PowerForceOff,
		redfish.PowerForceOn, redfish.PowerGracefulShutdown, redfish.PowerGracefulRestart, redfish.PowerForceRestart}
	reset := func(value string) sent { return sent{resetURI, `{"ResetType":"` + value + `"}`} }
	tray := []sent{reset("GracefulShutdown"), reset("On"), reset("PowerCycle"), reset("ForceOff"), reset("ForceOn"),
		reset("GracefulShutdown"), reset("GracefulRestart"), reset("ForceRestart")}
	liteonShelf := []sent{{"/reset", `{"ResetType":"GracefulShutdown"}`}, {"/on", `{"OnType":"On"}`}, {},
		{"/off", `{"ForceOffType":"ForceOff"}`}, {"/on", `{"OnType":"On"}`}, {}, {}, {}}
	deltaShelf := []sent{{deltaOff, `{}`}, {deltaOn, `{}`}, {}, {deltaOff, `{}`}, {deltaOn, `{}`}, {}, {}, {}}
	for _, id := range redfish.NodeTypes() {
		want := tray
		switch {
		case strings.HasSuffix(id, "_delta"):
			want = deltaShelf
		case strings.HasSuffix(id, "_liteon"):
			want = liteonShelf
		}
		for i, op := range operations {
			t.Run(id+" "+op.String(), func(t *testing.T) {
				b := newBMC(t)
				b.system(`"On"`)
				b.shelf(`{"#Chassis.On":{"target":"/on","@Redfish.ActionInfo":"/onInfo"},
					"#Chassis.ForceOff":{"target":"/off","@Redfish.ActionInfo":"/offInfo"},"#Chassis.Reset":{"target":"/reset"}}`, "true")
				b.on("/onInfo", ok(`{"Parameters":[{"Name":"OnType","AllowableValues":["On"]}]}`))
				b.on("/offInfo", ok(`{"Parameters":[{"Name":"ForceOffType","DefaultValue":"ForceOff"}]}`))
				b.deltaShelves(deltaShelfBody)
				for _, path := range []string{resetURI, "/on", "/off", "/reset", deltaOn, deltaOff} {
					b.on("POST "+path, reply(204, ""))
				}
				err := b.client(id).Power(t.Context(), op)
				posts := b.requests(http.MethodPost, "/")
				if want[i].path == "" {
					require.ErrorIs(t, err, redfish.ErrUnsupportedPowerOp)
					require.ErrorContains(t, err, op.String()+" is not supported for powershelf power control")
					require.Empty(t, b.requests("", "/"), "it is refused before anything is sent")
					return
				}
				require.NoError(t, err)
				require.Len(t, posts, 1)
				require.Equal(t, want[i].path, posts[0].path)
				require.JSONEq(t, want[i].body, posts[0].body)
			})
		}
	}
}

// Lenovo lists the baseboard before the host, and both may be reset: commands and
// waits have to look at the same one.
func TestLenovoCommandAndWaitLookAtTheHost(t *testing.T) {
	t.Parallel()
	const board = "/redfish/v1/Systems/HGX_Baseboard_0"
	b := newBMC(t)
	b.on("/redfish/v1/Systems", ok(members(board, systemURI)))
	b.on(board, ok(`{"Id":"HGX_Baseboard_0","PowerState":"On","Actions":{"#ComputerSystem.Reset":{"target":"/wrong"}}}`))
	b.system(`"Off"`)
	b.on("POST "+resetURI, reply(204, ""))
	b.on("POST /wrong", reply(204, ""))
	c := b.client(lenovo)
	require.NoError(t, c.RunStep(t.Context(), redfish.StepForceOff, nil))
	require.NoError(t, c.WaitPower(t.Context(), redfish.PowerStateOff, fast().PowerOffLimit))
	require.Len(t, b.requests("POST", resetURI), 1)
	require.Empty(t, b.requests("POST", "/wrong"))
}

func TestDeviceInfoOfEveryTray(t *testing.T) {
	t.Parallel()
	for _, id := range typesOf(node.FamilyCompute) {
		b := newBMC(t)
		b.topology(`{"MNNVLinkTopology":{"ChassisSerialNumber":"1700000000042","TraySlotNumber":24,"TraySlotIndex":14}}`)
		info, err := b.client(id).DeviceInfo(t.Context())
		require.NoError(t, err, id)
		require.EqualValues(t, 1700000000042, *info.ChassisSerial, id)
		require.EqualValues(t, 24, *info.SlotNumber, id)
		require.EqualValues(t, 14, *info.TrayIndex, id)
	}
}

func TestActivationOfEveryType(t *testing.T) {
	t.Parallel()
	settled := []redfish.Step{"force_off", "wait_off", "aux_cycle", "aux_settle", "power_on", "wait_on"}
	probed := []redfish.Step{"force_off", "pause_off", "aux_cycle", "wait_bmc", "power_on", "keep_on"}
	restart := []redfish.Step{"manager_reset", "wait_manager"}
	for id, want := range map[string][]redfish.Step{
		gb200: settled, wiwynn: settled, gb300: probed, lenovo: probed, supermicro: probed, vrnvl72: probed,
		liteon: restart, "powershelf_gb300_liteon": restart, delta: restart, "powershelf_gb300_delta": restart,
	} {
		require.Equal(t, want, profile(t, id).Activation.Steps, id)
	}
	require.Len(t, redfish.NodeTypes(), 10)
}
