// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/rackbus/rackbus/deploy"
	"github.com/rackbus/rackbus/pkg/bootstrap"
)

const bootstrapHelp = `bootstrap makes, in a directory of the machine it runs on, everything that a new
installation needs: a certificate authority and certificates for every process,
the NKEYs of the bus users, the keys that credentials are sealed with, and for each
process a directory with its configuration and the secrets that it may have. It
contacts nobody. At the end it tells which directory to copy where.

It only adds: what exists is never replaced. Run it again after an update, or with
--profile leaf in the same directory for each further site with agents. Keep the
directory safe and backed up; secrets/tls/ca.key is needed for new certificates only.`

const bootstrapExample = `  rackctl bootstrap --out site --profile single --api-host rackbus.example.net --nats-host nats.example.net
  rackctl bootstrap --out site --profile cluster --api-host rackbus.example.net \
      --nats-host nats-0.example.net --nats-host nats-1.example.net --nats-host nats-2.example.net --leaf-listener
  rackctl bootstrap --out site --profile leaf --site row-b --nats-host nats.row-b.example.net \
      --hub-host nats-0.example.net --hub-host nats-1.example.net --hub-host nats-2.example.net`

func newBootstrap(env *Env) *cobra.Command {
	o := bootstrap.Options{Files: deploy.Files}
	var profile string
	cmd := &cobra.Command{
		Use: "bootstrap", Short: "Make the keys, certificates and configurations of a new installation",
		Long: bootstrapHelp, Example: bootstrapExample, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			o.Profile = bootstrap.Profile(profile)
			report, err := bootstrap.Run(o)
			switch {
			case errors.Is(err, bootstrap.ErrOptions):
				return usagef("%w", err)
			case err != nil:
				return failed(err)
			}
			return bootstrapReport(env.Stdout, report)
		},
	}
	var names []string
	for _, p := range bootstrap.Profiles() {
		names = append(names, string(p))
	}
	f := cmd.Flags()
	f.StringVar(&o.Dir, "out", "", "`DIR` to make everything in, or to add to")
	f.StringVar(&profile, "profile", string(bootstrap.Single), strings.Join(names, ", ")+": one nats-server, three, or a further site with agents")
	f.StringArrayVar(&o.APIHosts, "api-host", nil, "`NAME` or address by which clients reach the API; may be repeated")
	f.StringArrayVar(&o.NATSHosts, "nats-host", nil, "`HOST[:PORT]` of a nats-server (port 4222); three times for a cluster")
	f.StringArrayVar(&o.HubHosts, "hub-host", nil, "leaf: `HOST[:PORT]` of each nats-server of the hub (port 7422)")
	f.StringVar(&o.Site, "site", "", "leaf: `NAME` of the site")
	f.BoolVar(&o.LeafListener, "leaf-listener", false, "let leaf sites connect; without it that port is open on the loopback address only")
	f.StringVar(&o.InstallDir, "install-dir", bootstrap.DefaultInstallDir, "`DIR` where the files will lie, one directory for each process")
	f.StringVar(&o.StateDir, "state-dir", bootstrap.DefaultStateDir, "`DIR` of what the processes keep")
	f.StringVar(&o.NATSDir, "nats-dir", bootstrap.DefaultNATSDir, "`DIR` of the store of nats-server")
	f.StringVar(&o.FirmwareDir, "firmware-dir", bootstrap.DefaultFirmwareDir, "`DIR` of firmware files on the hosts of API and agents")
	return cmd
}

func bootstrapReport(w io.Writer, r *bootstrap.Report) error {
	fmt.Fprintf(w, "%d files and directories made.\n", len(r.Made))
	for _, path := range r.Extended {
		fmt.Fprintf(w, "Lines added to %s\n", path)
	}
	for _, path := range r.Different {
		fmt.Fprintf(w, "Kept as it was, though it would be written otherwise now: %s\n", path)
	}
	for _, path := range r.Stale {
		fmt.Fprintf(w, "Ends soon, or is for other hosts; remove it with its key and its copies to get another: %s\n", path)
	}
	fmt.Fprint(w, "\nCopy the content of each directory, owned by the user of the process and with the same modes:\n\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "FROM\tTO\tPROGRAM\tHOST")
	for _, c := range r.Copies {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", c.From, c.To, orDash(c.Program), orDash(c.Host))
	}
	if err := t.Flush(); err != nil {
		return failed(err)
	}
	_, err := fmt.Fprint(w, "\nsecrets/ stays here: back it up, without it nobody can read the store or the stored credentials.\n")
	if err != nil {
		return failed(err)
	}
	return nil
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
