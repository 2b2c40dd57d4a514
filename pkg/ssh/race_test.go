// SPDX-License-Identifier: Apache-2.0

//go:build race

package ssh_test

const raceEnabled = true
