// SPDX-License-Identifier: Apache-2.0

// Package crash kills and freezes the processes of Rackbus while they work, and checks that nothing of what must
// always hold was hurt: every accepted job ends, one worker is on a node at a time, and no change is sent twice.
//
// The seed fixes which process is hit, how and when, as far as a machine repeats its timing. Long runs:
//
//	go test ./test/crash -run TestCrash -timeout=0 -v -args -crash.n=300 -crash.seed=7 -crash.replicas=3
package crash
