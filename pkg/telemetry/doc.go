// SPDX-License-Identifier: Apache-2.0

// Package telemetry is what a process shows of itself: its log with secrets
// masked, its metrics, its build version, and the HTTP listener for metrics and
// health.
package telemetry
