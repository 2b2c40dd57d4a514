// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"io/fs"
	"syscall"
)

const (
	othersBits    fs.FileMode = 0o077
	groupReadBits fs.FileMode = 0o040
	root                      = 0
)

// refusedBits are the permissions that a secret file must not give. What root has
// opened to a group for a process that is not root may be read by that group:
// Kubernetes mounts secrets so (fsGroup), and only root could have made it so.
func refusedBits(owner, reader int) fs.FileMode {
	if owner == root && reader != root {
		return othersBits &^ groupReadBits
	}
	return othersBits
}

// ownerOf returns the user id of a file's owner, -1 where there is none.
func ownerOf(info fs.FileInfo) int {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Uid)
	}
	return -1
}
