// SPDX-License-Identifier: Apache-2.0

// Package console is the web console: racks as elevations, jobs, and what can be done
// about them, for people with a browser.
//
// It is an http.Handler over the gRPC services of the API and knows nothing that their
// other clients do not. Every request is made with the rights of the browser's
// certificate: what a viewer may not do is not offered, and refused by the API when it
// is asked for all the same. Pages are rendered here and can be read without scripts;
// one small script makes them live.
//
// One follower keeps a picture of all jobs, fed by WatchJobs, from which the elevations
// and the live updates of every browser are made. A browser asks what has changed since
// the version that it has seen, so nothing is queued for one that is slow.
package console
