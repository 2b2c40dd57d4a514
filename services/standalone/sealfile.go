// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/rackbus/rackbus/pkg/ironic"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/process"
	"github.com/rackbus/rackbus/pkg/seal"
	computeagent "github.com/rackbus/rackbus/services/compute-agent"
)

// keysSeal seals a file of variables, so that only compute agents can read it.
func keysSeal(args []string, stdout, stderr io.Writer) int {
	set := flag.NewFlagSet("rackbus keys seal", flag.ContinueOnError)
	set.SetOutput(stderr)
	keys := set.String("keys", "", "key directory; its public keys are enough")
	in := set.String("in", "", "file of NAME=value lines; - for standard input")
	out := set.String("out", "", "file to write; standard output when empty")
	purpose := set.String("for", purposeValidation, "what the variables are for: validation or ironic")
	switch err := set.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return process.ExitOK
	case err != nil:
		return process.ExitUsage
	case *keys == "" || *in == "" || set.NArg() > 0:
		fmt.Fprintln(stderr, "rackbus keys seal: --keys DIR and --in FILE are needed")
		return process.ExitUsage
	}
	if err := sealFile(*purpose, *keys, *in, *out, stdout); err != nil {
		fmt.Fprintf(stderr, "rackbus keys seal: %v\n", err)
		return process.ExitFault
	}
	return process.ExitOK
}

// What variables can be for.
const (
	purposeValidation = "validation"
	purposeIronic     = "ironic"
)

func sealFile(purpose, keys, in, out string, stdout io.Writer) error {
	kind, check := computeagent.EnvironmentKind, computeagent.CheckEnvironment
	switch purpose {
	case purposeValidation:
	case purposeIronic:
		kind, check = ironic.EnvironmentKind, ironic.CheckEnvironment
	default:
		return fmt.Errorf("--for is %s or %s, not %q", purposeValidation, purposeIronic, purpose)
	}
	public, err := seal.LoadPublic(keys)
	if err != nil {
		return err
	}
	sealer, err := seal.NewSealer(public)
	if err != nil {
		return err
	}
	session, err := sealer.NewSession(node.FamilyCompute)
	if err != nil {
		return err
	}
	var plain []byte
	if in == "-" {
		plain, err = io.ReadAll(os.Stdin)
	} else {
		plain, err = os.ReadFile(in)
	}
	if err != nil {
		return err
	}
	defer clear(plain)
	if err := check(plain); err != nil {
		return err
	}
	text, err := seal.EncodeDocument(session, kind, plain)
	if err != nil {
		return err
	}
	if out == "" {
		_, err = stdout.Write(text)
		return err
	}
	return os.WriteFile(out, text, 0o600) //nolint:gosec // where the operator wants it
}
