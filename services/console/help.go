// SPDX-License-Identifier: Apache-2.0

package console

import (
	"net/http"

	"github.com/rackbus/rackbus/pkg/job"
)

// helpPage explains what the console shows.
type helpPage struct {
	page
	Groups []job.FailureGroup
	// Runbook is the page of the documentation with a section for each code.
	Runbook string
}

func (c *Console) serveHelp(w http.ResponseWriter, r *http.Request, p page) {
	p.Title, p.Nav = "Help", navHelp
	c.render(w, r, http.StatusOK, "help", helpPage{page: p, Groups: job.FailureGroups(), Runbook: job.RunbookPage})
}
