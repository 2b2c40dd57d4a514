// SPDX-License-Identifier: Apache-2.0

// Package cli is the command tree of rackctl.
//
// Data goes to standard output, in a form that a program can read when it is
// asked for; progress, questions and reasons go to standard error. The exit code
// tells what has become of it: see the Exit constants.
package cli
