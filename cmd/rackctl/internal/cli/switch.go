// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

func newSwitch(p *program) *cobra.Command {
	cmd := group("switch", "Look after NVSwitch trays and their fabric",
		group("image", "Install NVOS images", newImageList(p), newImageUpdate(p), newImageApply(p)),
		group("firmware", "Firmware files on switches", newSwitchFirmwareList(p), newSwitchFirmwarePush(p)),
		newSwitchCertificate(p), newSwitchMTLS(p), newSwitchPassword(p), newSwitchReset(p, false), newSwitchReset(p, true),
		newFabric(p), newAttest(p))
	cmd.Aliases = []string{"switches"}
	return cmd
}

// switchJob is a command that starts a job on switches.
func switchJob(p *program, use, short, long string, call func(context.Context, *server, *rackmanager.NodeSet) (started, error), ask string) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Long: long + "\n\n" + nodesHelp + waitHelp + exitHelp}
	nodes, jobs := addNodeFlags(cmd, p), addJobFlags(cmd, true)
	out := answers(cmd)
	var yes *bool
	if ask != "" {
		yes = addYes(cmd)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := out.settle(p); err != nil {
			return err
		}
		return p.with(cmd.Context(), func(ctx context.Context, s *server) error {
			set, err := nodes.nodes(ctx, p, s, cmd, args, node.FamilySwitch)
			if err != nil {
				return err
			}
			if yes != nil {
				if err := p.confirm(*yes, ask, len(set.GetNodes())); err != nil {
					return err
				}
			}
			st, err := call(jobs.context(ctx), s, set)
			if err != nil {
				return err
			}
			return jobs.follow(ctx, p, s, out, st)
		})
	}
	return cmd
}

// switchCall is a command about one registered switch that prints what the switch
// says, a JSON document.
func switchCall(p *program, use, short string, long string, call func(context.Context, *server, node.Ref) (document, error)) *cobra.Command {
	cmd := &cobra.Command{
		Use: use + " [RACK/]NODE", Short: short, Long: long + "\n\n" + exitHelp, Args: cobra.ExactArgs(1), ValidArgsFunction: p.completeNodes,
	}
	rack := cmd.Flags().String("rack", "", "`RACK` of the switch")
	register(cmd, "rack", p.completeRacks)
	out := addOutput(cmd, formYAML, formJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := out.check(); err != nil {
			return err
		}
		ref, err := reference(*rack, args[0])
		if err != nil {
			return err
		}
		return p.with(cmd.Context(), func(ctx context.Context, s *server) error {
			doc, err := call(ctx, p.patient(s), ref)
			if err != nil {
				return err
			}
			return doc.show(p, out)
		})
	}
	return cmd
}

// document is what a switch says, or why it does not.
type document struct {
	status rackmanager.ReturnCode
	json   string
	reason string
}

// show writes the document; the switch decides what is in it.
func (d document) show(p *program, out *output) error {
	if !succeeded(d.status) {
		return failedf("%s", cell(d.reason))
	}
	if d.json == "" {
		fmt.Fprintln(p.env.Stderr, "rackctl: done")
		return nil
	}
	if !json.Valid([]byte(d.json)) {
		return failedf("the switch did not answer with JSON")
	}
	if out.form == formJSON {
		return out.write(p.env.Stdout, json.RawMessage(d.json))
	}
	raw, err := yaml.JSONToYAML([]byte(d.json))
	if err != nil {
		return failed(err)
	}
	_, err = p.env.Stdout.Write(raw)
	return err
}

func newImageList(p *program) *cobra.Command {
	return switchCall(p, "list", "List the images on a switch", "List the NVOS images on a registered switch.",
		func(ctx context.Context, s *server, ref node.Ref) (document, error) {
			resp, err := s.racks.ListSwitchSystemImages(ctx, &rackmanager.ListSwitchSystemImagesRequest{RackId: ref.RackID, NodeId: ref.NodeID})
			return document{resp.GetStatus(), resp.GetImagesJson(), resp.GetErrorMessage()}, err
		})
}

func newImageUpdate(p *program) *cobra.Command {
	req := &rackmanager.UpdateSwitchSystemImageRequest{}
	cmd := switchJob(p, "update", "Install an image file of the server", `Install an NVOS image from the server's host on switches. The name of the file has
one version of the form X.Y.Z in it.`, func(ctx context.Context, s *server, set *rackmanager.NodeSet) (started, error) {
		if req.GetLocalFilePath() == "" {
			return started{}, usagef("--image is missing")
		}
		if req.GetImageFilename() == "" {
			req.ImageFilename = req.GetLocalFilePath()[strings.LastIndex(req.GetLocalFilePath(), "/")+1:]
		}
		req.Nodes = set
		resp, err := s.racks.UpdateSwitchSystemImage(ctx, req)
		return startedBatch(resp, resp.GetResponse()), err
	}, "")
	cmd.Flags().StringVar(&req.LocalFilePath, "image", "", "`PATH` of the image on the server's host (required)")
	cmd.Flags().StringVar(&req.ImageFilename, "as", "", "`NAME` that the file gets on the switch (default its own)")
	return cmd
}

func newImageApply(p *program) *cobra.Command {
	var f objectFlags
	var token func() (*string, error)
	cmd := switchJob(p, "apply", "Install the image of a firmware object",
		"Install the switch image of a stored firmware object (--object), of the default\nobject of --hardware, or of a manifest (--manifest).",
		func(ctx context.Context, s *server, set *rackmanager.NodeSet) (started, error) {
			if err := f.check(); err != nil {
				return started{}, err
			}
			if f.manifest == "" {
				resp, err := s.racks.ApplyStoredSwitchSystemImage(ctx, &rackmanager.ApplyStoredSwitchSystemImageRequest{
					RackId: rackOf(set), ObjectId: f.object, SoftwareType: f.firmware, HardwareType: f.hardware, Nodes: set,
				})
				return startedBatch(resp, resp.GetResponse()), err
			}
			config, err := f.config(ctx, p, s)
			if err != nil {
				return started{}, err
			}
			secret, err := token()
			if err != nil {
				return started{}, err
			}
			resp, err := s.racks.ApplySwitchSystemImage(ctx, &rackmanager.ApplySwitchSystemImageRequest{
				RackId: rackOf(set), ConfigJson: config, AccessToken: secret, SoftwareType: f.firmware, HardwareType: f.hardware, Nodes: set,
			})
			return startedBatch(resp, resp.GetResponse()), err
		}, "")
	flags := cmd.Flags()
	flags.StringVar(&f.object, "object", "", "stored firmware `OBJECT`")
	flags.StringVar(&f.manifest, "manifest", "", "`FILE` with a manifest, in place of a stored object")
	flags.StringVar(&f.hardware, "hardware", "", "`HARDWARE_TYPE`, whose default object is taken without --object")
	flags.StringVar(&f.firmware, "software", "prod", "`KIND` of the image: prod or dev")
	register(cmd, "object", p.completeObjects)
	token = tokenFlag(cmd, p.env)
	return cmd
}

const componentPrefix = "SWITCH_FIRMWARE_COMPONENT_TYPE_"

// switchComponents are the components that have firmware files.
var switchComponents = []string{"bmc", "fpga", "erot", "cpld", "bios", "transceiver"}

// addComponent is the flag for a component of a switch.
func addComponent(cmd *cobra.Command) func() (rackmanager.SwitchFirmwareComponentType, error) {
	word := cmd.Flags().String("component", "", "`COMPONENT`: "+strings.Join(switchComponents, ", ")+" (required)")
	complete(cmd, "component", switchComponents)
	return func() (rackmanager.SwitchFirmwareComponentType, error) {
		if *word == "" {
			return 0, usagef("--component is needed, one of %s", strings.Join(switchComponents, ", "))
		}
		n, known := rackmanager.SwitchFirmwareComponentType_value[componentPrefix+strings.ToUpper(*word)]
		if !known || n < int32(rackmanager.SwitchFirmwareComponentType_SWITCH_FIRMWARE_COMPONENT_TYPE_BMC) {
			return 0, usagef("--component %q is none of %s", *word, strings.Join(switchComponents, ", "))
		}
		return rackmanager.SwitchFirmwareComponentType(n), nil
	}
}

func newSwitchFirmwareList(p *program) *cobra.Command {
	var component func() (rackmanager.SwitchFirmwareComponentType, error)
	cmd := switchCall(p, "list", "List the firmware files of a component", "List the firmware files of one component that lie on a registered switch.",
		func(ctx context.Context, s *server, ref node.Ref) (document, error) {
			c, err := component()
			if err != nil {
				return document{}, err
			}
			resp, err := s.racks.ListSwitchFirmware(ctx, &rackmanager.ListSwitchFirmwareRequest{RackId: ref.RackID, NodeId: ref.NodeID, ComponentType: c})
			return document{resp.GetStatus(), resp.GetResultJson(), resp.GetErrorMessage()}, err
		})
	component = addComponent(cmd)
	return cmd
}

func newSwitchFirmwarePush(p *program) *cobra.Command {
	var component func() (rackmanager.SwitchFirmwareComponentType, error)
	var path, name string
	cmd := switchCall(p, "push", "Copy a firmware file to a switch", "Copy a firmware file from the server's host to a registered switch, without installing it.",
		func(ctx context.Context, s *server, ref node.Ref) (document, error) {
			c, err := component()
			if err != nil {
				return document{}, err
			}
			if path == "" {
				return document{}, usagef("--image is missing")
			}
			if name == "" {
				name = path[strings.LastIndex(path, "/")+1:]
			}
			resp, err := s.racks.PushSwitchFirmware(ctx, &rackmanager.PushSwitchFirmwareRequest{
				RackId: ref.RackID, NodeId: ref.NodeID, ComponentType: c, Filename: name, LocalFilePath: path,
			})
			return document{resp.GetStatus(), resp.GetResultJson(), resp.GetErrorMessage()}, err
		})
	component = addComponent(cmd)
	cmd.Flags().StringVar(&path, "image", "", "`PATH` of the file on the server's host (required)")
	cmd.Flags().StringVar(&name, "as", "", "`NAME` that the file gets on the switch (default its own)")
	return cmd
}

// switchServices are the services that can have certificates, as people write them.
var switchServices = map[string]rackmanager.SwitchService{
	"nvue-api":                   rackmanager.SwitchService_SWITCH_SERVICE_NVUE_API,
	"fabric-manager":             rackmanager.SwitchService_SWITCH_SERVICE_SCALE_UP_FABRIC_MANAGER,
	"fabric-telemetry":           rackmanager.SwitchService_SWITCH_SERVICE_SCALE_UP_FABRIC_TELEMETRY,
	"fabric-telemetry-interface": rackmanager.SwitchService_SWITCH_SERVICE_SCALE_UP_FABRIC_TELEMETRY_INTERFACE,
}

// serviceWords are the names of switchServices, in the order of their numbers.
var serviceWords = []string{"nvue-api", "fabric-telemetry", "fabric-manager", "fabric-telemetry-interface"}

func addServices(cmd *cobra.Command, words *[]string) {
	cmd.Flags().StringSliceVar(words, "service", nil, "`SERVICES`: "+strings.Join(serviceWords, ", ")+" (required)")
	complete(cmd, "service", serviceWords)
}

func servicesOf(words []string) ([]rackmanager.SwitchService, error) {
	if len(words) == 0 {
		return nil, usagef("--service is missing; there are %s", strings.Join(serviceWords, ", "))
	}
	var out []rackmanager.SwitchService
	for _, w := range words {
		s, known := switchServices[strings.ToLower(w)]
		if !known {
			return nil, usagef("unknown service %q; there are %s", w, strings.Join(serviceWords, ", "))
		}
		out = append(out, s)
	}
	return out, nil
}

func newSwitchCertificate(p *program) *cobra.Command {
	var words []string
	var domain func() *string
	var hello bool
	cmd := switchJob(p, "certificate", "Install certificates and turn mutual TLS on", "Install the server's certificates for services of switches, and turn mutual TLS on.",
		func(ctx context.Context, s *server, set *rackmanager.NodeSet) (started, error) {
			services, err := servicesOf(words)
			if err != nil {
				return started{}, err
			}
			resp, err := s.racks.ConfigureSwitchCertificate(ctx, &rackmanager.ConfigureSwitchCertificateRequest{
				Nodes: set, Services: services, TestHello: hello, Domain: domain(),
			})
			return startedBatch(resp, resp.GetResponse()), err
		}, "")
	cmd.Aliases = []string{"certificates", "cert"}
	addServices(cmd, &words)
	domain = addDomain(cmd)
	cmd.Flags().BoolVar(&hello, "test", false, "try a Hello over mutual TLS afterwards")
	return cmd
}

func newSwitchMTLS(p *program) *cobra.Command {
	var words []string
	cmd := switchJob(p, "disable", "Turn mutual TLS off", "Take mutual TLS from services of switches.",
		func(ctx context.Context, s *server, set *rackmanager.NodeSet) (started, error) {
			services, err := servicesOf(words)
			if err != nil {
				return started{}, err
			}
			resp, err := s.racks.BatchDisableSwitchMtls(ctx, &rackmanager.BatchDisableSwitchMtlsRequest{Nodes: set, Services: services})
			return startedBatch(resp, resp.GetResponse()), err
		}, "Turn mutual TLS off on %d switches")
	addServices(cmd, &words)
	return group("mtls", "Mutual TLS of switches", cmd)
}

// envNewPassword may hold the password that a switch gets.
const envNewPassword = "RACKCTL_NEW_PASSWORD" //nolint:gosec // the name, not the password

func newSwitchPassword(p *program) *cobra.Command {
	var username string
	next := loginFlags{prefix: "new-", env: envNewPassword, user: "new"}
	cmd := switchJob(p, "password", "Change the password of an operating system user", `Change the password of a user of switches. The new one comes from
--new-password-file, the variable `+envNewPassword+` or a prompt; the nodes log in with
the current one.`, func(ctx context.Context, s *server, set *rackmanager.NodeSet) (started, error) {
		if username == "" {
			return started{}, usagef("--of-user is missing")
		}
		password, err := next.password(p.env)
		if err != nil {
			return started{}, err
		}
		if len(password) == 0 {
			return started{}, usagef("the new password is empty")
		}
		resp, err := s.racks.UpdateSwitchSystemPassword(ctx, &rackmanager.UpdateSwitchSystemPasswordRequest{
			Nodes: set, Username: username, Password: string(password),
		})
		return startedBatch(resp, resp.GetResponse()), err
	}, "")
	cmd.Flags().StringVar(&username, "of-user", "", "`USER` whose password is changed (required)")
	cmd.Flags().StringVar(&next.file, "new-password-file", "", "`FILE` with the new password in its first line; - is standard input")
	return cmd
}

func newSwitchReset(p *program, sdn bool) *cobra.Command {
	var domain func() *string
	use, short, ask := "factory-reset", "Return switches to factory settings", "Return %d switches to factory settings"
	if sdn {
		use, short, ask = "sdn-reset", "Return the fabric settings of switches to factory defaults", "Return the fabric settings of %d switches to factory defaults"
	}
	cmd := switchJob(p, use, short, short+".", func(ctx context.Context, s *server, set *rackmanager.NodeSet) (started, error) {
		if sdn {
			resp, err := s.racks.BatchResetSwitchSdnFactoryDefault(ctx, &rackmanager.BatchResetSwitchSdnFactoryDefaultRequest{Nodes: set, Domain: domain()})
			return startedBatch(resp, resp.GetResponse()), err
		}
		resp, err := s.racks.BatchResetSwitchFactoryDefault(ctx, &rackmanager.BatchResetSwitchFactoryDefaultRequest{Nodes: set, Domain: domain()})
		return startedBatch(resp, resp.GetResponse()), err
	}, ask)
	domain = addDomain(cmd)
	return cmd
}

func newAttest(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "attest", Short: "Collect SPDM attestation evidence",
		Long: `Collect signed SPDM measurements and certificate chains from switches. -o json has
them; the table tells which components have answered.

` + nodesHelp + exitHelp,
	}
	nodes := addNodeFlags(cmd, p)
	nonce := cmd.Flags().String("nonce", "", "32 bytes in hexadecimal or base64, which go into every measurement (required)")
	domain := addDomain(cmd)
	out := answers(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := out.settle(p); err != nil {
			return err
		}
		raw, err := hex.DecodeString(*nonce)
		if err != nil {
			raw, err = base64.StdEncoding.DecodeString(*nonce)
		}
		if err != nil || len(raw) != 32 {
			return usagef("--nonce is not 32 bytes in hexadecimal or base64")
		}
		return p.with(cmd.Context(), func(ctx context.Context, s *server) error {
			set, err := nodes.nodes(ctx, p, s, cmd, args, node.FamilySwitch)
			if err != nil {
				return err
			}
			resp, err := p.patient(s).racks.BatchCollectSwitchSpdmAttestationEvidence(ctx, &rackmanager.BatchCollectSwitchSpdmAttestationEvidenceRequest{
				Targets: set.GetNodes(), Nonce: raw, Domain: domain(),
			})
			if err != nil {
				return err
			}
			t := &table{columns: columns("NODE", "COMPONENT", "RESULT", ">BYTES", "WHY")}
			for _, r := range resp.GetResults() {
				if len(r.GetComponents()) == 0 {
					t.add(r.GetNodeId(), "", resultField(r.GetStatus()), "", r.GetErrorMessage())
				}
				for _, c := range r.GetComponents() {
					t.add(r.GetNodeId(), c.GetComponentId(), resultField(c.GetStatus()), len(c.GetEvidence().GetMeasurements()), c.GetErrorMessage())
				}
			}
			if err := out.show(p.env, resp, t); err != nil {
				return err
			}
			if !succeeded(resp.GetStatus()) {
				return failedf("%s", cell(resp.GetMessage()))
			}
			return nil
		})
	}
	return cmd
}
