// SPDX-License-Identifier: Apache-2.0

// Package host simulates the operating system of a compute tray: an SSH server with the commands that an in-band
// update of network devices uses (mst, flint, sudo, systemctl, mktemp, rm, test, pgrep), an SFTP server over a
// directory of its own, and network devices whose new versions come into force with an AUX power cycle of the tray.
//
// A host follows the power of its Machine: it takes no connections while the tray is off, boots for a while when it
// comes on, and has lost its driver and its temporary files then.
package host
