// SPDX-License-Identifier: Apache-2.0

// Package download is the workflow of artifact_download jobs: it fetches the
// artifacts of one cache of the firmware catalogue.
//
// The artifacts' records are its memory. One that is available is done with, and
// whoever takes a job over goes on with the others, from where a partial file was
// left. Agents that wait for an artifact watch its record, so every way out of a
// job that will not be taken over leaves no record pending: each is available, or
// failed with the reason.
package download
