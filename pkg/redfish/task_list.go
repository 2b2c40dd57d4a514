// SPDX-License-Identifier: Apache-2.0

package redfish

import "context"

// Tasks lists every task the device knows, without reading them. Whoever takes
// an interrupted upload over compares it with the list from before.
func (c *Client) Tasks(ctx context.Context) ([]TaskRef, error) {
	list, err := c.collection(ctx, "list tasks", tasksPath)
	if err != nil {
		return nil, err
	}
	refs := make([]TaskRef, 0, len(list.members))
	for _, member := range list.members {
		refs = append(refs, refOf(member))
	}
	return refs, nil
}
