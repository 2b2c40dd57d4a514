// SPDX-License-Identifier: Apache-2.0

// Package nvue drives an NVSwitch tray over its NVUE REST interface.
//
// A Client talks to one switch. It knows nothing of jobs or buses: every
// exported method is one building block that a workflow calls between its
// checkpoints.
//
// # Connections
//
// A new Client has no connection and sends nothing before one was chosen with
// Initialize, Bootstrap, Prepare or Activate. Each choice is a generation: it is
// built beside the present one, proved with GET /nvue_v1/system, and put in its
// place in one step. Verification is weakened only by an explicit choice.
// Credentials never leave the origin: redirects and paths outside /nvue_v1 are
// refused.
//
// # Configuration
//
// An Edit is one change of the configuration. Change makes a revision of any
// number of them, applies and saves it, and leaves nothing behind when it fails.
// A workflow that has to survive a crash takes the steps one by one with the
// Revision as its handle: CreateRevision, StageRevision, then FinishRevision, which
// looks at the device before it goes on.
//
// # Actions
//
// An Action is work of the switch itself (an install, an import, a reset). Start
// gives its id, LookAtAction one reading, AwaitAction the outcome. How a reading is
// judged is data, an ActionPolicy, since an action that reboots the switch ends
// in an error or in silence when all went well.
//
// # Who may change the switch
//
// Every request other than GET passes the Guard given to New, inside the
// transport, right before its first byte. A Client without a Guard only reads.
//
// # What an error tells
//
// Methods return *Error. Its Code is one of a small set that errors.Is knows,
// its Issue the switch's own words. Credentials and other secrets that were sent
// are removed from every text.
package nvue
