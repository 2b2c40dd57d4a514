// SPDX-License-Identifier: Apache-2.0

// Package console tests the web console in a real Chromium, with a client certificate, in
// front of separate processes and a simulated rack. console.mjs drives the browser with
// playwright-core; the test tells it what to do next and what must be on the page. Only
// this folder uses anything of npm: run npm ci in it first.
package console
