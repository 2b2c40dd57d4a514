// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/rackbus/rackbus/pkg/certs"
	"github.com/rackbus/rackbus/pkg/process"
	"github.com/rackbus/rackbus/pkg/seal"
	"github.com/rackbus/rackbus/pkg/telemetry"
)

const usage = `rackbus: the control plane for NVLink racks

Usage:
  rackbus serve [flags]                      run everything in one process
  rackbus keys init --out DIR [--host NAME]  make key pairs, the key of the store, and a test CA
  rackbus keys seal --keys DIR --in FILE     seal an environment (validator, Ironic) for the compute agents
  rackbus version                            print the version

Each command lists its flags with --help, for example rackbus keys seal --help.
`

// Main runs the command line of the rackbus binary and returns its exit code.
func Main(args []string, stdout, stderr io.Writer) int {
	switch command := strings.Join(args[:min(len(args), 2)], " "); {
	case len(args) == 0:
		fmt.Fprint(stderr, usage)
		return process.ExitUsage
	case args[0] == "serve":
		return process.Main(Program(), args[1:], stdout, stderr)
	case command == "keys init":
		return keysInit(args[2:], stdout, stderr)
	case command == "keys seal":
		return keysSeal(args[2:], stdout, stderr)
	case args[0] == "keys" && len(args) == 2 && (args[1] == "--help" || args[1] == "-h"):
		return keysInit(args[1:], stdout, stderr)
	case args[0] == "keys":
		return keysUnknown(args[1:], stderr)
	case args[0] == "version", args[0] == "--version":
		fmt.Fprintln(stdout, telemetry.Version())
		return process.ExitOK
	case args[0] == "help", args[0] == "--help", args[0] == "-h":
		fmt.Fprint(stdout, usage)
		return process.ExitOK
	default:
		fmt.Fprintf(stderr, "rackbus: unknown command %q\n\n%s", command, usage)
		return process.ExitUsage
	}
}

// keysUnknown says which commands there are below keys.
func keysUnknown(args []string, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprintln(stderr, "rackbus keys: say which: rackbus keys init or rackbus keys seal, each with --help")
		return process.ExitUsage
	}
	fmt.Fprintf(stderr, "rackbus keys: unknown command %q; there are init and seal, each with --help\n", args[0])
	return process.ExitUsage
}

func keysInit(args []string, stdout, stderr io.Writer) int {
	set := flag.NewFlagSet("rackbus keys init", flag.ContinueOnError)
	set.SetOutput(stderr)
	out := set.String("out", "", "directory to make the keys in")
	var hosts []string
	set.Func("host", "DNS name or address that the server certificates are for, beside localhost; may be repeated", func(v string) error {
		hosts = append(hosts, v)
		return nil
	})
	switch err := set.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return process.ExitOK
	case err != nil:
		return process.ExitUsage
	case *out == "" || set.NArg() > 0:
		fmt.Fprintln(stderr, "rackbus keys init: --out DIR is needed, and nothing else but --host")
		return process.ExitUsage
	}
	added, err := InitKeys(*out, hosts)
	switch {
	case errors.Is(err, seal.ErrKeysExist), errors.Is(err, certs.ErrExists):
		fmt.Fprintf(stderr, "rackbus keys init: %v; nothing was replaced, choose an empty directory\n", err)
		return process.ExitFault
	case err != nil:
		fmt.Fprintf(stderr, "rackbus keys init: %v\n", err)
		return process.ExitFault
	}
	if len(added) > 0 {
		fmt.Fprintf(stdout, "Keys added in %s for the families it lacked: %v. Nothing else was changed.\n", *out, added)
		return process.ExitOK
	}
	fmt.Fprintf(stdout, "Keys made in %s. Keep at-rest.key and families/*.seed secret, and back them up:\n"+
		"without them stored data and credentials cannot be read again.\n", *out)
	return process.ExitOK
}
