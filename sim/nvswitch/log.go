// SPDX-License-Identifier: Apache-2.0

package nvswitch

import (
	"time"

	"github.com/rackbus/rackbus/sim/reqlog"
)

// operation is something a client does over SSH, SFTP or gRPC, on its way into the request log.
type operation struct {
	sw    *Switch
	entry reqlog.Entry
	ended func()
	// recorded says that the log has what the client may already know of.
	recorded func()
}

// begin notes an operation in progress.
func (s *Switch) begin(e reqlog.Entry) *operation {
	e.Time, e.Device = time.Now(), s.opts.ID
	return &operation{sw: s, entry: e, ended: s.opts.Log.Begin(e)}
}

// answering is called before the client can see anything of the operation's end.
func (o *operation) answering() {
	if o.recorded == nil {
		o.recorded = o.sw.opts.Log.Answering()
	}
}

// end records the operation.
func (o *operation) end(status int, complete bool) {
	o.answering()
	o.entry.Status, o.entry.Complete = status, complete
	o.entry.DurationMS = float64(time.Since(o.entry.Time)) / float64(time.Millisecond)
	o.sw.opts.Log.Add(o.entry)
	o.recorded()
	o.ended()
}
