// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"errors"
	"fmt"
)

// Errors that callers decide with. The text before them names what is meant, so
// that the whole can be shown to a client.
var (
	// ErrExists says that the id is taken.
	ErrExists = errors.New("already exists")
	// ErrNotFound says that there is no such entry, or that it was removed.
	ErrNotFound = errors.New("not found")
	// ErrInvalid says that an entry cannot be stored as it is.
	ErrInvalid = errors.New("invalid catalogue entry")
)

func objectExists(id string) error { return fmt.Errorf("firmware object %s %w", id, ErrExists) }

func objectNotFound(id string) error { return fmt.Errorf("firmware object %s %w", id, ErrNotFound) }

func defaultNotFound(hardwareType string) error {
	return fmt.Errorf("default firmware object for %s %w", hardwareType, ErrNotFound)
}

func artifactNotFound(cache, path string) error {
	return fmt.Errorf("artifact %s of %s %w", path, cache, ErrNotFound)
}

func planExists(id string) error { return fmt.Errorf("firmware plan %s %w", id, ErrExists) }

func planNotFound(id string) error { return fmt.Errorf("firmware plan %s %w", id, ErrNotFound) }
