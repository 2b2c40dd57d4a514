// SPDX-License-Identifier: Apache-2.0

// Package artifactcache gives an agent the files of the firmware catalogue: it
// waits until they are downloaded and opens what it has verified.
//
// With a shared firmware directory the files are opened where the download has put
// them. Otherwise they are read from the store of the catalogue, once per process
// and whoever asks for them, into a directory of the agent's own below its firmware
// directory. That directory survives restarts and is kept below a size by removing
// what was not used for the longest time. Agents on one host may share it.
package artifactcache
