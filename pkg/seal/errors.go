// SPDX-License-Identifier: Apache-2.0

package seal

import "errors"

var (
	// ErrNoKey says that there is no public key to seal for a family.
	ErrNoKey = errors.New("no public key for this family")
	// ErrUnknownKey says that a box was sealed for a key this opener does not
	// hold: it is of another family, or its seed was retired too early.
	ErrUnknownKey = errors.New("sealed for an unknown key")
	// ErrTampered says that a box does not open: its content was changed, or it
	// was moved to another place than the one it was sealed for.
	ErrTampered = errors.New("sealed data does not open here")
	// ErrKeysExist says that key files are already there; they are never
	// overwritten, since losing a seed loses everything sealed for it.
	ErrKeysExist = errors.New("key files already exist")
	// ErrInsecureMode says that a secret file can be read by others than its owner.
	ErrInsecureMode = errors.New("secret file is accessible to group or others")
	// ErrInvalidKey says that a key or a key file cannot be parsed.
	ErrInvalidKey = errors.New("invalid key")
)
