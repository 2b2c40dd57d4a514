// SPDX-License-Identifier: Apache-2.0

// Package coldreboot takes a whole rack down and up again: compute trays are shut
// down, power shelves switched off until every tray has discharged, and then all
// of it switched on in order.
//
// The workflow touches no device itself. It asks the agents, which alone can open
// the credentials that its command carries for them. Nothing is rolled back when a
// stage fails, and no power action is sent after one has.
//
// A power action is announced in the job's checkpoint, node by node, before it is
// asked for, and again when it is answered. Whoever takes the job over, or has
// lost an answer, waits until no agent can act on the request any more and then
// looks at the node's power state; an action is asked for again only when the
// state shows that the device never took it.
package coldreboot
