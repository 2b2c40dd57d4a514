// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports are drawn below the range from which the kernel takes those of outgoing connections: a process that is
// restarted must find its port free.
const (
	firstPort = 20_000
	lastPort  = 31_999
	portTries = 200
)

// ports draws free TCP ports that no other process of the cluster has.
type ports struct{ taken map[int]bool }

func (p *ports) draw(ctx context.Context) (int, error) {
	if p.taken == nil {
		p.taken = map[int]bool{}
	}
	var config net.ListenConfig
	for range portTries {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if p.taken[port] {
			continue
		}
		l, err := config.Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			return 0, fmt.Errorf("draw a port: %w", err)
		}
		p.taken[port] = true
		return port, nil
	}
	return 0, errors.New("draw a port: none is free")
}
