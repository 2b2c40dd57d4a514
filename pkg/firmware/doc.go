// SPDX-License-Identifier: Apache-2.0

// Package firmware reads the formats in which firmware comes: PLDM firmware
// update packages (DSP0267, header formats 1 to 4), packages that carry other
// packages as their images, and the tar archives of power shelves.
//
// Nothing is loaded as a whole: a header costs its own size, images are
// streamed from where they lie. What does not fit together is refused with the
// offset in the file where it was met, as a *FormatError.
//
// ReadPackage and ReadArchive read one header; Packages and Images look into
// nested packages; Verify also checks sizes and checksums; ExtractVME gives the
// programming file of a switch's CPLD.
package firmware
