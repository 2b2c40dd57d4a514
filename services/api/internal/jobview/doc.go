// SPDX-License-Identifier: Apache-2.0

// Package jobview keeps a picture of all jobs in memory, for lists and watches.
// It follows the record subjects of the bus, so that every replica of the API has
// the same picture, some milliseconds old. What a job has as result, its stages
// and the long texts of its failure are not part of the picture.
package jobview
