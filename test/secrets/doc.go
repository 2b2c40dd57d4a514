// SPDX-License-Identifier: Apache-2.0

// Package secrets plants passwords and tokens, lets all of Rackbus work and fail with them, and looks for them
// everywhere afterwards.
package secrets
