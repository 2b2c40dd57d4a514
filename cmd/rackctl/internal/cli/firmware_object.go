// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// envToken may hold the access token of downloads.
const envToken = "RACKCTL_ACCESS_TOKEN" //nolint:gosec // the name, not the token

func newFirmwareObject(p *program) *cobra.Command {
	cmd := group("object", "Keep the firmware objects of the catalogue",
		newObjectList(p), newObjectGet(p), newObjectAdd(p), newObjectStatus(p), newObjectRetry(p), newObjectDefault(p), newObjectDelete(p))
	cmd.Aliases = []string{"objects"}
	return cmd
}

func objectTable(objects []*rackmanager.FirmwareObject) *table {
	t := &table{columns: columns("OBJECT", "HARDWARE", "AVAILABLE", "DEFAULT", "CREATED", "+COMPONENTS"), empty: "The catalogue has no such object."}
	for _, o := range objects {
		look := good
		if !o.GetAvailable() {
			look = odd
		}
		var components []string
		for _, d := range o.GetMetadata().GetDeviceComponents() {
			for _, c := range d.GetComponents() {
				components = append(components, strings.TrimSpace(fmt.Sprintf("%s %s", c.GetName(), c.GetVersion())))
			}
		}
		t.add(o.GetId(), o.GetHardwareType(), field{okWord(o.GetAvailable()), look}, okWord(o.GetIsDefault()), at(o.GetCreated()), strings.Join(components, ", "))
	}
	return t
}

func newObjectList(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List the firmware objects", Args: cobra.NoArgs,
		Long: "List the firmware objects of the catalogue, newest first.\n\n" + exitHelp,
	}
	req := &rackmanager.ListFirmwareObjectsRequest{}
	cmd.Flags().StringVar(&req.HardwareType, "hardware", "", "only those for this `HARDWARE_TYPE`")
	cmd.Flags().BoolVar(&req.OnlyAvailable, "available", false, "only those whose files have all been fetched")
	return p.asks(cmd, func(ctx context.Context, r *request) error {
		resp, err := r.s.racks.ListFirmwareObjects(ctx, req)
		if err != nil {
			return err
		}
		return r.show(resp, objectTable(resp.GetObjects()))
	})
}

// objectArg is a command about one firmware object.
func objectArg(p *program, use, short, long string, run func(context.Context, *request, string) error) *cobra.Command {
	cmd := &cobra.Command{
		Use: use + " OBJECT", Short: short, Long: long + "\n\n" + exitHelp, Args: cobra.ExactArgs(1),
		ValidArgsFunction: once(p.completeObjects),
	}
	return p.asks(cmd, func(ctx context.Context, r *request) error { return run(ctx, r, r.args[0]) })
}

func newObjectGet(p *program) *cobra.Command {
	return objectArg(p, "get", "Show a firmware object", "Show what a firmware object holds for each type of node. -o json has the manifest.",
		func(ctx context.Context, r *request, id string) error {
			resp, err := r.s.racks.GetFirmwareObject(ctx, &rackmanager.GetFirmwareObjectRequest{Id: id})
			if err != nil {
				return err
			}
			t := &table{columns: columns("FOR", "COMPONENT", "VERSION", "BUNDLE", "+FILES")}
			for _, d := range resp.GetObject().GetMetadata().GetDeviceComponents() {
				for _, c := range d.GetComponents() {
					var names []string
					for _, a := range c.GetArtifacts() {
						names = append(names, fmt.Sprintf("%s (%s)", a.GetFilename(), a.GetFirmwareType()))
					}
					t.add(typeWord(d.GetNodeType(), d.NodeDescriptor), c.GetName(), c.GetVersion(), c.GetBundle(), strings.Join(names, ", "))
				}
			}
			for _, i := range resp.GetObject().GetMetadata().GetSwitchSystemImages() {
				t.add("switch image", i.GetPackageName(), i.GetVersion(), i.GetSoftwareType(), i.GetImageFilename())
			}
			return r.show(resp, t)
		})
}

func newObjectDelete(p *program) *cobra.Command {
	var yes *bool
	cmd := objectArg(p, "delete", "Remove a firmware object", "Remove a firmware object and its files, and stop a download that is under way.",
		func(ctx context.Context, r *request, id string) error {
			if err := p.confirm(*yes, "Remove firmware object %s with its files", id); err != nil {
				return err
			}
			resp, err := r.s.racks.DeleteFirmwareObject(ctx, &rackmanager.DeleteFirmwareObjectRequest{Id: id})
			if err != nil {
				return err
			}
			return r.outcome(resp, resp.GetResponse())
		})
	yes = addYes(cmd)
	return cmd
}

func newObjectDefault(p *program) *cobra.Command {
	return objectArg(p, "set-default", "Make an object the default of its hardware type", "Make an object the default of its hardware type, in place of the former one.",
		func(ctx context.Context, r *request, id string) error {
			resp, err := r.s.racks.SetDefaultFirmwareObject(ctx, &rackmanager.SetDefaultFirmwareObjectRequest{ObjectId: id})
			if err != nil {
				return err
			}
			return r.show(resp, objectTable([]*rackmanager.FirmwareObject{resp.GetObject()}))
		})
}

func newObjectStatus(p *program) *cobra.Command {
	return objectArg(p, "status", "Show how far the download of an object is", "Show where the files of a firmware object stand.",
		func(ctx context.Context, r *request, id string) error {
			resp, err := r.s.firmware.GetFirmwareObjectStatus(ctx, &rackbusv1.GetFirmwareObjectStatusRequest{ObjectId: id})
			if err != nil {
				return err
			}
			t := &table{columns: columns("FILE", "STATE", ">DONE", ">OF", "+FROM", "WHY")}
			for _, a := range resp.GetArtifacts() {
				look := busy
				switch a.GetState() {
				case rackbusv1.ArtifactState_ARTIFACT_STATE_AVAILABLE:
					look = good
				case rackbusv1.ArtifactState_ARTIFACT_STATE_FAILED:
					look = bad
				default:
				}
				t.add(a.GetPath(), field{enumWord(a.GetState(), "ARTIFACT_STATE_"), look}, bytesWord(a.GetBytesDone()), bytesWord(a.GetBytesTotal()),
					a.GetLocation(), a.GetFailure())
			}
			t.notes = []string{fmt.Sprintf("%d of %d files are there, %s", resp.GetArtifactsAvailable(), len(resp.GetArtifacts()), bytesWord(resp.GetBytesDone()))}
			return r.show(resp, t)
		})
}

// tokenFlag is the access token of downloads, never given on the command line.
func tokenFlag(cmd *cobra.Command, env *Env) func() (*string, error) {
	file := cmd.Flags().String("token-file", "", "`FILE` with the access token of downloads in its first line; or the variable "+envToken)
	return func() (*string, error) {
		if *file == "" && env.Getenv(envToken) == "" {
			return nil, nil
		}
		raw, err := (&loginFlags{file: *file, env: envToken, prefix: "token-"}).password(env)
		token := string(raw)
		return &token, err
	}
}

func newObjectAdd(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "add MANIFEST", Short: "Add a firmware object and fetch its files",
		Long: "Add the manifest in a JSON file to the catalogue; its files are fetched by a job.\nrackctl firmware object status shows how far that is.\n\n" + exitHelp,
		Args: cobra.ExactArgs(1), ValidArgsFunction: files,
	}
	hardware := cmd.Flags().String("hardware", "", "`HARDWARE_TYPE` that it is for, for example gb200 (required)")
	makeDefault := cmd.Flags().Bool("default", false, "make it the default of its hardware type")
	token := tokenFlag(cmd, p.env)
	requires(cmd, func([]string) error {
		if *hardware == "" {
			return usagef("--hardware is missing: which HARDWARE_TYPE is the object for?")
		}
		return nil
	})
	return p.asks(cmd, func(ctx context.Context, r *request) error {
		manifest, err := readInput(p.env, r.args[0])
		if err != nil {
			return usagef("manifest: %w", err)
		}
		secret, err := token()
		if err != nil {
			return err
		}
		resp, err := r.s.racks.AddFirmwareObject(ctx, &rackmanager.AddFirmwareObjectRequest{
			ConfigJson: string(manifest), HardwareType: *hardware, SetDefault: *makeDefault, AccessToken: secret,
		})
		if err != nil {
			return err
		}
		return r.show(resp, objectTable([]*rackmanager.FirmwareObject{resp.GetObject()}))
	})
}

func newObjectRetry(p *program) *cobra.Command {
	var token func() (*string, error)
	var jobs *jobFlags
	cmd := objectArg(p, "retry", "Fetch the files that an object lacks", "Fetch anew the files that a firmware object lacks.",
		func(ctx context.Context, r *request, id string) error {
			req := &rackbusv1.RetryFirmwareObjectDownloadRequest{ObjectId: id}
			secret, err := token()
			if err != nil {
				return err
			}
			if secret != nil {
				req.AccessToken = *secret
			}
			resp, err := r.s.firmware.RetryFirmwareObjectDownload(jobs.context(ctx), req)
			if err != nil {
				return err
			}
			return jobs.follow(ctx, r, started{answer: resp, jobID: resp.GetJobId()})
		})
	token, jobs = tokenFlag(cmd, p.env), addJobFlags(cmd, false)
	return cmd
}

func (p *program) completeObjects(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return p.candidates(cmd, typed, func(ctx context.Context, s *server) ([]string, error) {
		resp, err := s.racks.ListFirmwareObjects(ctx, &rackmanager.ListFirmwareObjectsRequest{})
		var out []string
		for _, o := range resp.GetObjects() {
			out = append(out, o.GetId())
		}
		return out, err
	})
}
