// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"net/http"
	"time"

	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/reqlog"
)

// connKey finds the deviceConn of a request in its context.
type connKey struct{}

func (r *Rack) serve(w http.ResponseWriter, req *http.Request) {
	conn := req.Context().Value(connKey{}).(*deviceConn)
	r.exchanges.Serve(w, req, served{conn.device}, conn)
}

// served is a device as requests see it.
type served struct{ *Device }

// Refusing reports whether the device takes no connections now.
func (d served) Refusing() bool {
	_, refusing := d.refusing(time.Now())
	return refusing
}

// Reconcile brings the device's listener in line with its state.
func (d served) Reconcile() { d.reconcile() }

// ServeHTTP answers one request. The power of a shelf reaches the trays before the answer is out.
func (d served) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	d.Device.ServeHTTP(w, req)
	if d.rack.opts.CoupledPower && d.Model().Shelf() && reqlog.FromContext(req.Context()).Write() {
		d.rack.couplePower()
	}
}

func redfishError(_ int, messageID, message string) any {
	return bmc.ErrorBody(cmp.Or(messageID, "GeneralError"), cmp.Or(message, "The request failed."))
}
