// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// readerLife is how long the broker keeps the consumer of a reader that has died; the
// client library's default is 5 min.
const readerLife = time.Minute

// dropReader removes the consumer of a reader that is done: there would be as many as
// there were reads within its life. Nobody waits for it, and losing the message costs
// only memory of the broker.
func (c *Conn) dropReader(stream string, cons jetstream.Consumer) {
	info := cons.CachedInfo()
	if info == nil {
		return
	}
	if err := c.nc.PublishRequest("$JS.API.CONSUMER.DELETE."+stream+"."+info.Name, c.nc.NewRespInbox(), nil); err != nil {
		c.log.Debug("consumer not removed, it will expire", "stream", stream, "err", err)
	}
}
