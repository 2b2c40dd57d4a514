// SPDX-License-Identifier: Apache-2.0

package console

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// cellView is one cell of an elevation.
type cellView struct {
	ElementID string
	RowID     string
	RackID    string
	NodeID    string
	Kind      kind
	Model     string
	nodeView
}

// Percent is how far the run is that works on the node.
func (c cellView) Percent() uint32 {
	if c.Owner == nil || c.Status != StatusWorking {
		return 0
	}
	return c.Owner.Percent
}

// statusCount is how many nodes have a status. Before is how many come before them in
// a bar.
type statusCount struct {
	Status        Status
	Label         string
	Count, Before int
}

// rackView is an elevation.
type rackView struct {
	ID     string
	HeadID string
	TileID string
	Model  string
	Cells  []cellView
	Counts []statusCount
	// moved is when a node of the rack last got another status.
	moved uint64
}

// Total is how many nodes the rack has.
func (r rackView) Total() int { return len(r.Cells) }

// Of is how many nodes of the rack have a status.
func (r rackView) Of(s Status) int {
	for _, c := range r.Counts {
		if c.Status == s {
			return c.Count
		}
	}
	return 0
}

// racksPage is the overview of all racks.
type racksPage struct {
	page
	// Shown are the elevations of this page; All is every rack that the filter selects,
	// shown as a map when they do not fit on one page.
	Shown, All []rackView
	Fleet      rackView
	// Total is how many racks there are, Selected how many the filter selects.
	Total, Selected int
	Filter          racksFilter
	// Prev and Next are addresses of other pages, empty when there are none.
	Prev, Next  string
	First, Last int
}

// racksFilter selects racks.
type racksFilter struct {
	Query string
	// Show selects racks that have a node of this status.
	Show Status
	Page int
}

func parseRacksFilter(q url.Values) racksFilter {
	f := racksFilter{Query: strings.TrimSpace(q.Get("q")), Page: 1}
	for _, s := range statuses {
		if q.Get("show") == string(s.Status) {
			f.Show = s.Status
		}
	}
	if n, err := strconv.Atoi(q.Get("page")); err == nil && n > 1 {
		f.Page = n
	}
	return f
}

func (f racksFilter) url(page int) string {
	q := url.Values{}
	if f.Query != "" {
		q.Set("q", f.Query)
	}
	if f.Show != "" {
		q.Set("show", string(f.Show))
	}
	if page > 1 {
		q.Set("page", strconv.Itoa(page))
	}
	if len(q) == 0 {
		return "/"
	}
	return "/?" + q.Encode()
}

// URLFor returns the address of the first page with another status selected.
func (f racksFilter) URLFor(s Status) string {
	f.Show = s
	return f.url(1)
}

// board is all elevations at one moment. It is never changed once it is made.
type board struct {
	racks  []rackView
	digest uint64 // of the inventory
	mark   mark
	made   time.Time
}

// rack returns an elevation.
func (b *board) rack(id string) (rackView, bool) {
	i := slices.IndexFunc(b.racks, func(v rackView) bool { return v.ID == id })
	if i < 0 {
		return rackView{}, false
	}
	return b.racks[i], true
}

// boards makes the boards that all browsers share, one at a time.
type boards struct {
	mu   sync.Mutex
	last *board
}

// board returns all elevations, which may be as old as the pause between two patches.
func (c *Console) board(ctx context.Context) (*board, error) {
	c.boards.mu.Lock()
	defer c.boards.mu.Unlock()
	racks, digest, err := c.inventory.get(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.fleet.await(ctx, c.opts.Timing.ReadyLimit); err != nil {
		return nil, err
	}
	now, _ := c.fleet.mark()
	if b := c.boards.last; b != nil && b.digest == digest && b.mark.life == now.life &&
		(b.mark == now || time.Since(b.made) < c.opts.Timing.PatchInterval) {
		return b, nil
	}
	known, now := c.fleet.snapshot()
	c.boards.last = &board{racks: elevations(racks, known), digest: digest, mark: now, made: time.Now()}
	return c.boards.last, nil
}

// elevations joins what is registered with what is known. It takes known apart.
func elevations(racks []rackSlots, known map[nodeKey]nodeView) []rackView {
	views := make([]rackView, 0, len(racks))
	index := map[string]int{}
	for _, r := range racks {
		v := newRackView(r.ID, r.Model)
		for _, s := range r.Slots {
			key := nodeKey{r.ID, s.ID}
			v.add(s, statusIn(known, key))
			delete(known, key)
		}
		index[r.ID] = len(views)
		views = append(views, v)
	}
	// What is left has jobs and is not registered.
	for key, status := range known {
		if status.Owner == nil && status.Withdrawn == nil {
			continue
		}
		i, ok := index[key.rack]
		if !ok {
			i = len(views)
			index[key.rack] = i
			views = append(views, newRackView(key.rack, ""))
		}
		views[i].add(slot{ID: key.node, Kind: kindOther}, status)
	}
	for i := range views {
		sortOthers(views[i].Cells)
		views[i].Counts = countStatuses(views[i].Cells)
	}
	slices.SortFunc(views, func(a, b rackView) int { return natural(a.ID, b.ID) })
	return views
}

func statusIn(known map[nodeKey]nodeView, key nodeKey) nodeView {
	if s, ok := known[key]; ok {
		return s
	}
	return nodeView{NodeStatus: NodeStatus{Status: StatusNone}}
}

func newRackView(id, model string) rackView {
	return rackView{ID: id, Model: model, HeadID: elementID("h", id, ""), TileID: elementID("t", id, "")}
}

func (r *rackView) add(s slot, status nodeView) {
	r.moved = max(r.moved, status.moved)
	r.Cells = append(r.Cells, cellView{
		ElementID: elementID("c", r.ID, s.ID), RowID: elementID("r", r.ID, s.ID),
		RackID: r.ID, NodeID: s.ID, Kind: s.Kind, Model: s.Model, nodeView: status,
	})
}

// sortOthers orders what is not registered, which comes last.
func sortOthers(cells []cellView) {
	i := slices.IndexFunc(cells, func(c cellView) bool { return c.Kind == kindOther })
	if i >= 0 {
		slices.SortFunc(cells[i:], func(a, b cellView) int { return natural(a.NodeID, b.NodeID) })
	}
}

func countStatuses(cells []cellView) []statusCount {
	by := map[Status]int{}
	for _, c := range cells {
		by[c.Status]++
	}
	out := make([]statusCount, 0, len(statuses))
	before := 0
	for _, s := range statuses {
		out = append(out, statusCount{s.Status, s.Label, by[s.Status], before})
		before += by[s.Status]
	}
	return out
}

// fleetView sums up racks. It looks at their counts alone: every live page asks for it
// with every change.
func fleetView(racks []rackView) rackView {
	v := rackView{HeadID: "fleet", Counts: countStatuses(nil)}
	before := 0
	for i := range v.Counts {
		for _, r := range racks {
			v.Counts[i].Count += r.Counts[i].Count
		}
		v.Counts[i].Before = before
		before += v.Counts[i].Count
	}
	return v
}

func (f racksFilter) selects(r rackView) bool {
	if f.Query != "" && !strings.Contains(strings.ToLower(r.ID), strings.ToLower(f.Query)) {
		return false
	}
	return f.Show == "" || r.Of(f.Show) > 0
}

func (c *Console) serveRacks(w http.ResponseWriter, r *http.Request, p page) {
	b, err := c.board(r.Context())
	if err != nil {
		c.fail(w, r, p, err)
		return
	}
	f := parseRacksFilter(r.URL.Query())
	view := racksPage{page: p, Fleet: fleetView(b.racks), Total: len(b.racks), Filter: f}
	for _, rack := range b.racks {
		if f.selects(rack) {
			view.All = append(view.All, rack)
		}
	}
	size := c.opts.RacksPerPage
	pages := max(1, (len(view.All)+size-1)/size)
	view.Filter.Page = min(f.Page, pages)
	from := (view.Filter.Page - 1) * size
	to := min(from+size, len(view.All))
	view.Selected, view.Shown, view.First, view.Last = len(view.All), view.All[from:to], from+1, to
	if view.Filter.Page > 1 {
		view.Prev = f.url(view.Filter.Page - 1)
	}
	if view.Filter.Page < pages {
		view.Next = f.url(view.Filter.Page + 1)
	}
	if pages == 1 {
		view.All = nil
	}
	live := b.liveQuery(showCells)
	for _, rack := range view.Shown {
		live.Add("rack", rack.ID)
	}
	view.Title, view.Nav, view.Live = "Racks", navRacks, "/live/racks?"+live.Encode()
	c.render(w, r, http.StatusOK, "racks", view)
}

// What a live page of racks shows of a node.
const (
	showCells = "cell"
	showRows  = "row"
	showPage  = "page"
)

// liveQuery is what a page made of the board has to ask for to stay live.
func (b *board) liveQuery(show string) url.Values {
	return url.Values{"since": {b.mark.String()}, "inventory": {strconv.FormatUint(b.digest, 36)}, "show": {show}}
}

// rackPage is one rack, with a row for each node.
type rackPage struct {
	page
	Rack rackView
}

func (c *Console) serveRack(w http.ResponseWriter, r *http.Request, p page) {
	b, err := c.board(r.Context())
	if err != nil {
		c.fail(w, r, p, err)
		return
	}
	id := r.PathValue("rack")
	rack, ok := b.rack(id)
	if !ok {
		c.missing(w, r, p, "There is no rack "+id+".")
		return
	}
	live := b.liveQuery(showRows)
	live.Set("rack", id)
	p.Title, p.Nav, p.Live = "Rack "+id, navRacks, "/live/racks?"+live.Encode()
	c.render(w, r, http.StatusOK, "rack", rackPage{page: p, Rack: rack})
}

// nodePage is one node with its history.
type nodePage struct {
	page
	Cell    cellView
	Runs    []*Run
	Omitted int
	Meaning string
}

func (c *Console) serveNode(w http.ResponseWriter, r *http.Request, p page) {
	b, err := c.board(r.Context())
	if err != nil {
		c.fail(w, r, p, err)
		return
	}
	key := nodeKey{r.PathValue("rack"), r.PathValue("node")}
	rack, _ := b.rack(key.rack)
	i := slices.IndexFunc(rack.Cells, func(c cellView) bool { return c.NodeID == key.node })
	if i < 0 {
		c.missing(w, r, p, "There is no node "+key.node+" in rack "+key.rack+".")
		return
	}
	view := nodePage{page: p, Cell: rack.Cells[i]}
	view.Cell.NodeStatus, view.Runs = c.fleet.node(key)
	view.Meaning = meaningOf(view.Cell.Status)
	if limit := c.opts.PageSize; len(view.Runs) > limit {
		view.Runs, view.Omitted = view.Runs[:limit], len(view.Runs)-limit
	}
	live := b.liveQuery(showPage)
	live.Set("rack", key.rack)
	live.Set("node", key.node)
	view.Title, view.Nav, view.Live = key.node+" in "+key.rack, navRacks, "/live/racks?"+live.Encode()
	c.render(w, r, http.StatusOK, "node", view)
}

// meaningOf returns the sentence that explains a status.
func meaningOf(s Status) string {
	for _, info := range statuses {
		if info.Status == s {
			return info.Meaning
		}
	}
	return ""
}

// sortRuns orders runs, newest first.
func sortRuns(runs []*Run) []*Run {
	slices.SortFunc(runs, func(a, b *Run) int { return compareRuns(b, a) })
	return runs
}
