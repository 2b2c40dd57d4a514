// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/stmcginnis/gofish/schemas"
)

// ManagerState is what is known of a manager around its reset. It is plain data,
// to be kept in a checkpoint.
type ManagerState struct {
	URI string `json:"uri"`
	// LastResetTime and UptimeSeconds are those before the reset; empty and
	// negative when the manager does not tell.
	LastResetTime string  `json:"last_reset_time,omitempty"`
	UptimeSeconds float64 `json:"uptime_seconds"`
	// ReadAt is when these were read.
	ReadAt time.Time `json:"read_at,omitzero"`
	// Tasks are those the manager knew before the reset, kept only when it tells
	// neither of the two above.
	Tasks []string `json:"tasks,omitempty"`
	// ResetAt is when the reset was sent.
	ResetAt time.Time `json:"reset_at"`
	// Accepted is false when the answer was lost.
	Accepted bool `json:"accepted"`
}

// RestartEvidence says what showed that a manager has restarted.
type RestartEvidence string

// The kinds of evidence.
const (
	// RestartOutage: it was seen away and back.
	RestartOutage RestartEvidence = "outage"
	// RestartResetTime: its LastResetTime has changed.
	RestartResetTime RestartEvidence = "last_reset_time"
	// RestartUptime: it runs for a shorter time than before.
	RestartUptime RestartEvidence = "uptime"
	// RestartTasks: it accepted the reset and has lost all its tasks, which live in
	// its memory.
	RestartTasks RestartEvidence = "tasks_gone"
	// RestartSteady: it accepted the reset and has answered without a gap since;
	// it must have restarted between two probes.
	RestartSteady RestartEvidence = "steady"
)

// manager finds the manager to restart: the profile's, else the first that can
// be reset. The resource may be there although its action is not.
func (c *Client) manager(ctx context.Context, op string) (*resource, *actionInfo, error) {
	if id := c.profile.BMCID; id != "" {
		r, err := c.byID(ctx, op, "Managers", id)
		if err != nil {
			return nil, nil, err
		}
		reset, err := c.action(op, r, "#Manager.Reset")
		return r, reset, err
	}
	list, err := c.collection(ctx, op, rootPath+"/Managers")
	if err != nil {
		return nil, nil, err
	}
	var skipped error
	for _, path := range list.members {
		r, err := c.member(ctx, op, path)
		if err != nil {
			if hopeless(ctx, err) {
				return nil, nil, err
			}
			skipped = first(skipped, err)
			continue
		}
		if reset, err := c.action(op, r, "#Manager.Reset"); err == nil {
			return r, reset, nil
		}
	}
	if skipped != nil {
		return nil, nil, skipped
	}
	return nil, nil, &Error{Op: op, Code: CodeFailedPrecondition, reason: "no manager can be reset", cause: ErrNoAction}
}

// ResetManager restarts the BMC or shelf controller: GracefulRestart, or
// ForceRestart with force; the other one where only that is allowed. A reset
// whose answer was lost is no error: the state says so, and WaitManager then
// demands proof.
func (c *Client) ResetManager(ctx context.Context, force bool) (ManagerState, error) {
	const op = "reset manager"
	r, reset, err := c.manager(ctx, op)
	if err != nil {
		return ManagerState{}, err
	}
	state := managerState(r)
	if state.tellsNothing() {
		state.Tasks = c.ownTasks(ctx)
	}
	state.ResetAt = time.Now()
	wanted := []string{string(schemas.GracefulRestartResetType), string(schemas.ForceRestartResetType)}
	if force {
		wanted[0], wanted[1] = wanted[1], wanted[0]
	}
	allowed, err := c.allowed(ctx, op, reset, "ResetType")
	if err != nil {
		return ManagerState{}, err
	}
	value, _ := choose(wanted, allowed)
	err = c.post(ctx, op, reset.target, map[string]string{"ResetType": value})
	if e, ok := asError(err); ok && e.Status == http.StatusBadRequest && len(allowed) == 0 && e.Code != CodeFailedPrecondition {
		// A manager that tells no values may take none at all.
		err = c.postBare(ctx, op, reset.target)
	}
	if lost(ctx, err) {
		c.log.Info("answer to the manager reset was lost", slog.String("err", err.Error()))
		return state, nil
	}
	state.Accepted = err == nil
	return state, err
}

func managerState(r *resource) ManagerState {
	s := ManagerState{URI: r.path, LastResetTime: r.text("LastResetTime"), UptimeSeconds: -1, ReadAt: time.Now().UTC()}
	for _, d := range []document{r.document, r.object("Oem"), r.at("Oem", "OpenBmc"), r.at("Oem", "Nvidia")} {
		if up, ok := d.number("UptimeSeconds"); ok {
			s.UptimeSeconds = up
			break
		}
	}
	return s
}

// tellsNothing reports a manager by whose own words no restart can be seen.
func (s ManagerState) tellsNothing() bool { return s.LastResetTime == "" && s.UptimeSeconds < 0 }

// ownTasks lists the tasks of the manager itself. Those it shows for the GPU
// baseboard come and go with another controller. A list that cannot be read is
// one proof less, no more.
func (c *Client) ownTasks(ctx context.Context) []string {
	var own []string
	tasks, err := c.Tasks(ctx)
	if err != nil {
		return nil
	}
	for _, task := range tasks {
		if !task.IsHMC() && task.URI != "" {
			own = append(own, task.URI)
		}
	}
	return own
}

// lostTasks reports whether none of the tasks from before the reset is left.
func (c *Client) lostTasks(ctx context.Context, op string, before ManagerState) bool {
	if len(before.Tasks) == 0 {
		return false
	}
	list, err := c.collection(ctx, op, tasksPath)
	if err != nil || !list.listed {
		return false
	}
	return !slices.ContainsFunc(list.members, func(uri string) bool { return slices.Contains(before.Tasks, uri) })
}

// WaitManager waits until the restart of a manager is over and says what showed
// it. An outage that is over proves it, and so do a new LastResetTime or a
// shorter uptime, since a fast controller restarts between two probes. One that
// tells neither has restarted when its tasks are gone, or is believed after it
// has answered steadily for a while, provided that it had accepted the reset.
func (c *Client) WaitManager(ctx context.Context, before ManagerState) (RestartEvidence, error) {
	probe, total := c.timing.ManagerProbe, c.timing.ManagerLimit
	if !before.Accepted {
		probe, total = c.timing.ManagerLostProbe, c.timing.ManagerLostLimit
	}
	return c.waitRestart(ctx, "wait for PowerShelf after activation", before, probe, total)
}

func (c *Client) waitRestart(ctx context.Context, op string, before ManagerState, probe, total time.Duration) (RestartEvidence, error) {
	end := within(total)
	outage := false
	steady := time.Now()
	for {
		if err := sleep(ctx, op, probe); err != nil {
			return "", err
		}
		_, err := c.getWithin(ctx, op, rootPath, c.timing.ManagerProbeTimeout)
		switch {
		case err == nil && outage:
			return RestartOutage, nil
		case err == nil:
			evidence, ok, err := c.restarted(ctx, op, before)
			if ok || (err != nil && hopeless(ctx, err)) {
				return evidence, err
			}
			if before.Accepted && c.lostTasks(ctx, op, before) {
				return RestartTasks, nil
			}
			if before.Accepted && before.tellsNothing() && time.Since(steady) >= c.timing.ManagerSteady {
				return RestartSteady, nil
			}
		case hopeless(ctx, err):
			return "", err
		default:
			outage = true
		}
		if end.passedAfter(probe) {
			reason := "the manager did not come back"
			if !outage {
				reason = "nothing shows that the manager has restarted"
			}
			return "", &Error{Op: op, Code: CodeTimeout, reason: reason, cause: err}
		}
	}
}

// uptimeSlack is how far an uptime may stay behind the clock without a restart in
// between: managers renew it once a minute, and the two readings may be those of two
// hosts.
const uptimeSlack = 90 * time.Second

// interrupted reports, long after a state was read, whether the manager runs for a
// shorter time than it would without a restart. Just to compare the two uptimes is not
// enough: the new one may have grown beyond the old one by then.
func (s ManagerState) interrupted(now ManagerState) bool {
	if now.UptimeSeconds < 0 || s.UptimeSeconds < 0 || s.ReadAt.IsZero() {
		return false
	}
	return now.UptimeSeconds < s.UptimeSeconds+(now.ReadAt.Sub(s.ReadAt)-uptimeSlack).Seconds()
}

// comparesWith reports whether both states tell of the manager's start in one and the
// same way. An uptime that stands still tells nothing.
func (s ManagerState) comparesWith(now ManagerState) bool {
	if s.LastResetTime != "" && now.LastResetTime != "" {
		return true
	}
	still := now.UptimeSeconds == s.UptimeSeconds && now.ReadAt.Sub(s.ReadAt) > uptimeSlack
	return now.UptimeSeconds >= 0 && s.UptimeSeconds >= 0 && !still
}

// restarted compares the manager with its state before the reset, while it is watched.
func (c *Client) restarted(ctx context.Context, op string, before ManagerState) (RestartEvidence, bool, error) {
	if before.URI == "" || before.tellsNothing() {
		return "", false, nil
	}
	evidence, ok, _, err := c.compareManager(ctx, op, before)
	return evidence, ok, err
}

// restartedSince does so at any later time. A manager that does not tell any more what
// it told before proves nothing: that is an error.
func (c *Client) restartedSince(ctx context.Context, op string, before ManagerState) (bool, error) {
	if before.URI == "" || before.tellsNothing() {
		return false, nil
	}
	_, ok, now, err := c.compareManager(ctx, op, before)
	switch {
	case ok || err != nil:
		return ok, err
	case !before.comparesWith(now):
		return false, &Error{Op: op, Path: before.URI, Code: CodeUnavailable, reason: "the manager does not tell any more when it was started"}
	case before.LastResetTime != "" && now.LastResetTime != "":
		return false, nil
	default:
		return before.interrupted(now), nil
	}
}

func (c *Client) compareManager(ctx context.Context, op string, before ManagerState) (RestartEvidence, bool, ManagerState, error) {
	r, err := c.getWithin(ctx, op, before.URI, c.timing.ManagerProbeTimeout)
	if err != nil {
		return "", false, ManagerState{}, err
	}
	now := managerState(r)
	switch {
	case before.LastResetTime != "" && now.LastResetTime != "" && now.LastResetTime != before.LastResetTime:
		return RestartResetTime, true, now, nil
	case now.UptimeSeconds >= 0 && before.UptimeSeconds >= 0 && now.UptimeSeconds < before.UptimeSeconds:
		return RestartUptime, true, now, nil
	}
	return "", false, now, nil
}
