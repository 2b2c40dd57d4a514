// SPDX-License-Identifier: Apache-2.0

package console

import (
	"net/http"

	"github.com/rackbus/rackbus/pkg/job"
)

// helpPage explains what the console shows.
type helpPage struct {
	page
	Codes []job.FailureCodeInfo
}

func (c *Console) serveHelp(w http.ResponseWriter, r *http.Request, p page) {
	p.Title, p.Nav = "Help", navHelp
	c.render(w, r, http.StatusOK, "help", helpPage{page: p, Codes: job.FailureCodes()})
}
