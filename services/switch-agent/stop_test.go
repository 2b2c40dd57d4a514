// SPDX-License-Identifier: Apache-2.0

package switchagent_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/credentials"
	"github.com/rackbus/rackbus/pkg/diagnostics"
	"github.com/rackbus/rackbus/pkg/failpoint"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/seal"
	"github.com/rackbus/rackbus/pkg/switchtls"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/jobs/stoptest"
	switchagent "github.com/rackbus/rackbus/services/switch-agent"
	"github.com/rackbus/rackbus/services/switch-agent/internal/crashtest"
	"github.com/rackbus/rackbus/sim/nvswitch"
	"github.com/rackbus/rackbus/sim/reqlog"
)

// order is a job for a switch that is to be stopped.
type order struct {
	typ     job.Type
	secrets proto.Message
	change  func(*rackbusv1.JobCommand)
	update  *rackbusv1.FirmwareUpdate
}

// stopped is the switch with a job that is to be stopped.
func (b *bench) stopped(o order, change ...func(*switchagent.Options)) *stoptest.Bench {
	return &stoptest.Bench{
		Conn: b.Conn, Family: b.Family, Connect: b.Connect, Quiet: 200 * time.Millisecond,
		At:    node.Ref{RackID: b.node.GetRackId(), NodeID: b.node.GetNodeId()},
		Start: func(points *failpoint.Points) { b.start(points, change...) },
		Admit: func() job.ID {
			return b.Admit(b.node, o.update, func(c *rackbusv1.JobCommand) {
				if o.update != nil {
					return
				}
				c.Type, c.Operation = string(o.typ), nil
				o.change(c)
				if o.secrets == nil {
					return
				}
				public, err := seal.LoadPublic(b.KeyDir)
				require.NoError(b.t, err)
				sealer, err := seal.NewSealer(public)
				require.NoError(b.t, err)
				session, err := sealer.NewSession(b.Family)
				require.NoError(b.t, err)
				c.Secrets, err = credentials.SealSecrets(session, c.GetJobId(), o.secrets)
				require.NoError(b.t, err)
			})
		},
		Requests: func() []stoptest.Request {
			var out []stoptest.Request
			for _, e := range b.sw.Requests(reqlog.Filter{}) {
				out = append(out, stoptest.Request{At: e.Time, Text: fmt.Sprintf("%s %s %s", e.Protocol, e.Method, e.Path)})
			}
			return out
		},
	}
}

// heeding is a stage that cannot be cut, whose job looks at the begin of the stage end
// whether it was asked to stop.
func heeding(name, end string) []stoptest.Stage {
	return []stoptest.Stage{{Name: name, End: end, Status: job.StageFailed, State: job.StateCancelled, Told: true}}
}

// unlimited are stages whose workflow does not know how long they may take.
func unlimited(stages []stoptest.Stage) []stoptest.Stage {
	for i := range stages {
		stages[i].Unlimited = true
	}
	return stages
}

// Each kind of job is stopped in the queue, in every stage and behind every change,
// whatever protocol it talks to the switch.
func TestStop(t *testing.T) {
	t.Parallel()
	cut, pinned := stoptest.Cut, stoptest.Pinned
	const (
		action = "in flight: action "
		bundle = "firmware_update as a bundle"
	)
	for name, k := range map[job.Type]stoptest.Kind{
		job.TypeFirmwareUpdate: {
			New: func(t *testing.T) *stoptest.Bench {
				b := newBench(t)
				b.timing.CycleProbes = 100
				return b.stopped(order{update: activated(b.pldm("", "nvfw_9.fwpkg", "9.9", "BIOS", "EROT"))})
			},
			Changes: []string{action, action, "in flight: "},
			Stages: slices.Concat(
				cut("check", "upload_1"), pinned("install_1", "monitor_1"), cut("upload_2"), pinned("install_2", "monitor_2"),
				stoptest.Brief("outcome"), pinned("activate", "activate_wait"), cut("verify"),
			),
		},
		bundle: {
			New: func(t *testing.T) *stoptest.Bench {
				b := newBench(t, func(o *nvswitch.Options) { o.Model = nvswitch.VRNVL72 })
				b.timing.CycleProbes = 100
				return b.stopped(order{update: activated(b.pldm("", "nvfw_vr.fwpkg", "9.9", "BMC", "BIOS", "SMA", "EROT", "CPLD1"))})
			},
			Changes: []string{action, "in flight: "},
			Stages: slices.Concat(
				cut("check", "bundle_upload", "bundle_fetch"), pinned("bundle_install", "bundle_monitor"),
				stoptest.Brief("outcome"), pinned("activate", "activate_wait"), cut("verify"),
			),
		},
		job.TypeSwitchSystemImageUpdate: {
			New: func(t *testing.T) *stoptest.Bench {
				b := newBench(t, twoImages)
				u := b.imageFile("25.02.4440")
				return b.stopped(order{typ: job.TypeSwitchSystemImageUpdate, change: func(c *rackbusv1.JobCommand) {
					c.Operation = &rackbusv1.JobCommand_SwitchImageUpdate{SwitchImageUpdate: u}
				}})
			},
			Changes: []string{action, action},
			Stages: slices.Concat(
				cut("inspect_state"), pinned("cleanup_old_partition"), cut("stage_image"),
				stoptest.Final("trigger_install", "wait_for_install_handoff", "wait_for_target_steady_state"),
			),
		},
		job.TypeSwitchCertificate: {
			New: func(t *testing.T) *stoptest.Bench {
				b := newBench(t)
				m := newMaterial(t, b)
				material := m.issue("switch")
				return b.stopped(order{
					typ:     job.TypeSwitchCertificate,
					secrets: &rackbusv1.SwitchCertificateSecrets{Ca: material.CA, Certificate: material.Certificate, Key: material.Key},
					change: func(c *rackbusv1.JobCommand) {
						c.Operation = &rackbusv1.JobCommand_SwitchCertificate{SwitchCertificate: &rackbusv1.SwitchCertificate{
							Services: []string{"nvue-api", "scale-up-fabric-manager"}, TestHello: true, RunId: "2026-11-29_00-00-00_000",
							CaCertificateId: "rms-site-ca-1", EntityCertificateId: "rms-site-cert-1",
						}}
					},
				}, func(o *switchagent.Options) { o.Device.TLS = switchtls.NewStore(m.settings) })
			},
			Changes: []string{""},
			Stages: slices.Concat(
				stoptest.Brief("prepare_remote_dir"), cut("sftp_copy_ca_pem", "sftp_copy_client_pem", "sftp_copy_client_key"),
				// It stops in front of the next binding, and restores what was bound.
				heeding("import_material", "bind_scale-up-fabric-manager"), heeding("bind_scale-up-fabric-manager", "bind_scale-up-fabric-manager"),
				heeding("bind_nvue-api", "bind_nvue-api"),
				stoptest.Brief("verify_services", "test_nvue_hello"), []stoptest.Stage{{
					Name: "test_nmx_hello", End: "test_nmx_hello", Status: job.StageCompleted, State: job.StateCompleted,
				}},
			),
		},
		job.TypeSwitchMtlsDisable: {
			New: func(t *testing.T) *stoptest.Bench {
				b := newBench(t)
				return b.stopped(order{typ: job.TypeSwitchMtlsDisable, change: func(c *rackbusv1.JobCommand) {
					c.Operation = &rackbusv1.JobCommand_SwitchMtlsDisable{SwitchMtlsDisable: &rackbusv1.SwitchMtlsDisable{Services: []string{"scale-up-fabric-manager"}}}
				}})
			},
			Stages: cut("unset_mtls_mode"), // behind its last line the job has ended
		},
		job.TypeSwitchSdnFactoryDefaultReset: {
			New: func(t *testing.T) *stoptest.Bench {
				b := newBench(t)
				b.sw.SetApp("nmx-controller", true, "enabled")
				b.sw.SetConfig("/cluster", map[string]any{"state": "enabled"})
				b.until("the controller", func() bool { return b.sw.App("nmx-controller").Status == "ok" })
				return b.stopped(order{typ: job.TypeSwitchSdnFactoryDefaultReset, change: func(c *rackbusv1.JobCommand) {
					c.Operation = &rackbusv1.JobCommand_SdnReset{SdnReset: &rackbusv1.SdnReset{}}
				}})
			},
			Changes: []string{"in flight: "},
			Stages: slices.Concat(
				stoptest.Brief("initialize_nvue"), stoptest.Final("reset_sdn", "await_reset_action", "await_controller"),
			),
		},
		job.TypeSwitchFactoryDefaultReset: {
			New: func(t *testing.T) *stoptest.Bench {
				b := newBench(t)
				b.node = b.target(true)
				return b.stopped(order{typ: job.TypeSwitchFactoryDefaultReset, change: func(c *rackbusv1.JobCommand) {
					c.Operation = &rackbusv1.JobCommand_SwitchFactoryReset{SwitchFactoryReset: &rackbusv1.SwitchFactoryReset{}}
				}})
			},
			Changes: []string{"in flight: "},
			Stages:  stoptest.Final("factory_reset", "await_factory_defaults"),
		},
		job.TypeSwitchSystemPasswordUpdate: {
			New: func(t *testing.T) *stoptest.Bench {
				b := newBench(t)
				return b.stopped(order{
					typ: job.TypeSwitchSystemPasswordUpdate, secrets: &rackbusv1.SwitchPasswordSecrets{Password: "n3xt-" + planted},
					change: func(c *rackbusv1.JobCommand) {
						c.Operation = &rackbusv1.JobCommand_SwitchPasswordUpdate{SwitchPasswordUpdate: &rackbusv1.SwitchPasswordUpdate{Username: b.sw.Username()}}
					},
				})
			},
			Changes: []string{""},
			Stages:  slices.Concat(cut("initialize"), heeding("update_password", "update_password")),
		},
		job.TypeConfigureScaleUpFabricManager2: {
			New: func(t *testing.T) *stoptest.Bench {
				b := newBench(t)
				return b.stopped(order{typ: job.TypeConfigureScaleUpFabricManager2, change: func(c *rackbusv1.JobCommand) {
					c.Operation = &rackbusv1.JobCommand_FabricReconcile{FabricReconcile: &rackbusv1.FabricReconcile{
						Switches: []*rackbusv1.FabricSwitch{{Target: b.node}}, Topology: topology,
					}}
				}})
			},
			Stages: slices.Concat(
				cut("snapshot", "select_primary"),
				// It stops before the first change; behind that the switches agree again only at its end.
				unlimited(heeding("disable_non_primaries", "disable_non_primaries")),
				unlimited(stoptest.Final("enforce_nmxc_security", "configure_and_converge", "read_back")),
			),
		},
		job.TypeNodeDiagnostics: {
			New: func(t *testing.T) *stoptest.Bench {
				b := newBench(t)
				return b.stopped(order{typ: job.TypeNodeDiagnostics, change: func(c *rackbusv1.JobCommand) {
					c.Operation = &rackbusv1.JobCommand_NodeDiagnosis{NodeDiagnosis: &rackbusv1.NodeDiagnosis{}}
				}}, func(o *switchagent.Options) { o.Diagnostics = diagnostics.Options{Store: b.Conn} })
			},
			Stages: slices.Concat(cut("prepare", "collect", "classify", "store"), stoptest.Done("conclude")),
		},
	} {
		t.Run(string(name), func(t *testing.T) {
			switch {
			case crashtest.Long():
				k.Test(t, stoptest.All)
			case name == bundle:
				k.Test(t, stoptest.Sample)
			default:
				k.Test(t, stoptest.Each)
			}
		})
	}
}
