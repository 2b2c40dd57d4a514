// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
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

// switchJob is a command that starts a job on switches. ask is the question before, with a place for their number, ""
// for none.
func switchJob(p *program, use, short, long string, call func(context.Context, *request, *rackmanager.NodeSet) (started, error), ask string,
) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Long: long + "\n\n" + nodesHelp + waitHelp + exitHelp}
	yes := new(true)
	if ask != "" {
		yes = addYes(cmd)
	}
	return p.starts(cmd, true, func(ctx context.Context, r *request, set *rackmanager.NodeSet) (started, error) {
		if !*yes {
			if err := p.confirm(false, ask, len(set.GetNodes())); err != nil {
				return started{}, err
			}
		}
		return call(ctx, r, set)
	}, node.FamilySwitch)
}

// switchCall is a command about one registered switch that prints what the switch says, a JSON document.
func switchCall(p *program, use, short, long string, call func(context.Context, *server, node.Ref) (document, error)) *cobra.Command {
	cmd := &cobra.Command{
		Use: use + " [RACK/]NODE", Short: short, Long: long + "\n\n" + exitHelp, Args: cobra.ExactArgs(1), ValidArgsFunction: once(p.completeNodes),
	}
	rack := cmd.Flags().String("rack", "", "`RACK` of the switch")
	register(cmd, "rack", p.completeRacks)
	return p.asksIn(cmd, addOutput(cmd, formYAML, formJSON), func(ctx context.Context, r *request) error {
		ref, err := reference(*rack, r.args[0])
		if err != nil {
			return err
		}
		doc, err := call(ctx, r.patient(), ref)
		if err != nil {
			return err
		}
		if !succeeded(doc.status) {
			return r.s.failedNodes(ctx, []node.Ref{ref}, cmp.Or(cell(doc.reason), "no reason was given"))
		}
		return doc.show(r)
	})
}

// document is what a switch says, or why it does not.
type document struct {
	status rackmanager.ReturnCode
	json   string
	reason string
}

// show writes the document; the switch decides what is in it.
func (d document) show(r *request) error {
	if d.json == "" {
		fmt.Fprintln(r.p.env.Stderr, "rackctl: done")
		return nil
	}
	if !json.Valid([]byte(d.json)) {
		return failedf("the switch did not answer with JSON")
	}
	if r.out.form == formJSON {
		return r.out.write(r.p.env.Stdout, json.RawMessage(d.json))
	}
	raw, err := yaml.JSONToYAML([]byte(d.json))
	if err != nil {
		return failed(err)
	}
	_, err = r.p.env.Stdout.Write(raw)
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
one version of the form X.Y.Z in it.`, func(ctx context.Context, r *request, set *rackmanager.NodeSet) (started, error) {
		if req.GetImageFilename() == "" {
			req.ImageFilename = req.GetLocalFilePath()[strings.LastIndex(req.GetLocalFilePath(), "/")+1:]
		}
		req.Nodes = set
		resp, err := r.s.racks.UpdateSwitchSystemImage(ctx, req)
		return startedBatch(resp, resp.GetResponse()), err
	}, "")
	cmd.Flags().StringVar(&req.LocalFilePath, "image", "", "`PATH` of the image on the server's host (required)")
	cmd.Flags().StringVar(&req.ImageFilename, "as", "", "`NAME` that the file gets on the switch (default its own)")
	requires(cmd, func([]string) error { return imageGiven(req.GetLocalFilePath()) })
	return cmd
}

func imageGiven(path string) error {
	if path == "" {
		return usagef("--image is missing: the PATH of the file below the server's firmware directory")
	}
	return nil
}

func newImageApply(p *program) *cobra.Command {
	var f objectFlags
	var token func() (*string, error)
	cmd := switchJob(p, "apply", "Install the image of a firmware object",
		"Install the switch image of a stored firmware object (--object), of the default\nobject of --hardware, or of a manifest (--manifest).",
		func(ctx context.Context, r *request, set *rackmanager.NodeSet) (started, error) {
			if f.manifest == "" {
				resp, err := r.s.racks.ApplyStoredSwitchSystemImage(ctx, &rackmanager.ApplyStoredSwitchSystemImageRequest{
					RackId: rackOf(set), ObjectId: f.object, SoftwareType: f.firmware, HardwareType: f.hardware, Nodes: set,
				})
				return startedBatch(resp, resp.GetResponse()), err
			}
			config, err := f.config(ctx, r)
			if err != nil {
				return started{}, err
			}
			secret, err := token()
			if err != nil {
				return started{}, err
			}
			resp, err := r.s.racks.ApplySwitchSystemImage(ctx, &rackmanager.ApplySwitchSystemImageRequest{
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
	complete(cmd, "software", []string{"prod", "dev"})
	token = tokenFlag(cmd, p.env)
	requires(cmd, func([]string) error { return f.check() })
	return cmd
}

const componentPrefix = "SWITCH_FIRMWARE_COMPONENT_TYPE_"

// switchComponents are the components that have firmware files.
var switchComponents = []string{"bmc", "fpga", "erot", "cpld", "bios", "transceiver"}

// addComponent is the flag for a component of a switch.
func addComponent(cmd *cobra.Command) func() (rackmanager.SwitchFirmwareComponentType, error) {
	word := cmd.Flags().String("component", "", "`COMPONENT`: "+strings.Join(switchComponents, ", ")+" (required)")
	complete(cmd, "component", switchComponents)
	read := func() (rackmanager.SwitchFirmwareComponentType, error) {
		if *word == "" {
			return 0, usagef("--component is needed, one of %s", strings.Join(switchComponents, ", "))
		}
		n, known := rackmanager.SwitchFirmwareComponentType_value[componentPrefix+strings.ToUpper(*word)]
		if !known || n < int32(rackmanager.SwitchFirmwareComponentType_SWITCH_FIRMWARE_COMPONENT_TYPE_BMC) {
			return 0, usagef("--component %q is none of %s", *word, strings.Join(switchComponents, ", "))
		}
		return rackmanager.SwitchFirmwareComponentType(n), nil
	}
	requires(cmd, func([]string) error {
		_, err := read()
		return err
	})
	return read
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
	requires(cmd, func([]string) error { return imageGiven(path) })
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
	requires(cmd, func([]string) error {
		_, err := servicesOf(*words)
		return err
	})
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
		func(ctx context.Context, r *request, set *rackmanager.NodeSet) (started, error) {
			services, err := servicesOf(words)
			if err != nil {
				return started{}, err
			}
			resp, err := r.s.racks.ConfigureSwitchCertificate(ctx, &rackmanager.ConfigureSwitchCertificateRequest{
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
		func(ctx context.Context, r *request, set *rackmanager.NodeSet) (started, error) {
			services, err := servicesOf(words)
			if err != nil {
				return started{}, err
			}
			resp, err := r.s.racks.BatchDisableSwitchMtls(ctx, &rackmanager.BatchDisableSwitchMtlsRequest{Nodes: set, Services: services})
			return startedBatch(resp, resp.GetResponse()), err
		}, "Turn mutual TLS off on %d switches")
	addServices(cmd, &words)
	return group("mtls", "Mutual TLS of switches", cmd)
}

// envNewPassword may hold the password that a switch gets.
const envNewPassword = "RACKCTL_NEW_PASSWORD" //nolint:gosec // the name, not the password

func newSwitchPassword(p *program) *cobra.Command {
	var username string
	next := loginFlags{prefix: "new-", env: envNewPassword, twice: true}
	cmd := switchJob(p, "password", "Change the password of an operating system user", `Change the password of a user of switches. The new one comes from
--new-password-file, the variable `+envNewPassword+` or a prompt; the nodes log in with
the current one.`, func(ctx context.Context, r *request, set *rackmanager.NodeSet) (started, error) {
		next.prompt = fmt.Sprintf("New password of %s: ", cell(username))
		password, err := next.password(p.env)
		if err != nil {
			return started{}, err
		}
		if len(password) == 0 {
			return started{}, usagef("the new password is empty")
		}
		resp, err := r.s.racks.UpdateSwitchSystemPassword(ctx, &rackmanager.UpdateSwitchSystemPasswordRequest{
			Nodes: set, Username: username, Password: string(password),
		})
		return startedBatch(resp, resp.GetResponse()), err
	}, "")
	cmd.Flags().StringVar(&username, "of-user", "", "`USER` whose password is changed (required)")
	cmd.Flags().StringVar(&next.file, "new-password-file", "", "`FILE` with the new password in its first line; - is standard input")
	requires(cmd, func([]string) error {
		if username == "" {
			return usagef("--of-user is missing: the USER whose password is changed")
		}
		return nil
	})
	return cmd
}

func newSwitchReset(p *program, sdn bool) *cobra.Command {
	var domain func() *string
	use, short, ask := "factory-reset", "Return switches to factory settings", "Return %d switches to factory settings"
	if sdn {
		use, short, ask = "sdn-reset", "Return the fabric settings of switches to factory defaults", "Return the fabric settings of %d switches to factory defaults"
	}
	cmd := switchJob(p, use, short, short+".", func(ctx context.Context, r *request, set *rackmanager.NodeSet) (started, error) {
		if sdn {
			resp, err := r.s.racks.BatchResetSwitchSdnFactoryDefault(ctx, &rackmanager.BatchResetSwitchSdnFactoryDefaultRequest{Nodes: set, Domain: domain()})
			return startedBatch(resp, resp.GetResponse()), err
		}
		resp, err := r.s.racks.BatchResetSwitchFactoryDefault(ctx, &rackmanager.BatchResetSwitchFactoryDefaultRequest{Nodes: set, Domain: domain()})
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
	nonce := cmd.Flags().String("nonce", "", "32 bytes in hexadecimal or base64, which go into every measurement (required)")
	domain := addDomain(cmd)
	requires(cmd, func([]string) error {
		_, err := nonceBytes(*nonce)
		return err
	})
	return p.asksAbout(cmd, func(ctx context.Context, r *request, set *rackmanager.NodeSet) error {
		raw, err := nonceBytes(*nonce)
		if err != nil {
			return err
		}
		resp, err := r.patient().racks.BatchCollectSwitchSpdmAttestationEvidence(ctx, &rackmanager.BatchCollectSwitchSpdmAttestationEvidenceRequest{
			Targets: set.GetNodes(), Nonce: raw, Domain: domain(),
		})
		if err != nil {
			return err
		}
		t := &table{columns: columns("NODE", "COMPONENT", "RESULT", ">BYTES", "WHY")}
		for _, n := range resp.GetResults() {
			if len(n.GetComponents()) == 0 {
				t.add(n.GetNodeId(), "", resultField(n.GetStatus()), "", n.GetErrorMessage())
			}
			for _, c := range n.GetComponents() {
				t.add(n.GetNodeId(), c.GetComponentId(), resultField(c.GetStatus()), len(c.GetEvidence().GetMeasurements()), c.GetErrorMessage())
			}
		}
		if err := r.show(resp, t); err != nil {
			return err
		}
		if !succeeded(resp.GetStatus()) {
			return failedf("%s", cell(resp.GetMessage()))
		}
		return nil
	}, node.FamilySwitch)
}

// nonceLength is how many random bytes SPDM takes (DSP0274).
const nonceLength = 32

func nonceBytes(text string) ([]byte, error) {
	if text == "" {
		return nil, usagef("--nonce is missing: 32 random bytes, for example \"$(openssl rand -hex 32)\"")
	}
	raw, err := hex.DecodeString(text)
	if err != nil {
		raw, err = base64.StdEncoding.DecodeString(text)
	}
	if err != nil || len(raw) != nonceLength {
		return nil, usagef("--nonce is not %d bytes in hexadecimal or base64", nonceLength)
	}
	return raw, nil
}
