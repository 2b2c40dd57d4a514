// SPDX-License-Identifier: Apache-2.0

// Package firmware reads firmware packages.
//
// ReadPackage reads the header of a PLDM firmware update package (DSP0267,
// header formats 1 to 4): which devices it is for, which component images it
// carries and their versions. It streams, so a package of any size costs only
// its header, and it refuses what does not fit together with the offset where
// it was met. Checksums are not verified; the device does that.
package firmware
