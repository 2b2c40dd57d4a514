// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/rackbus/rackbus/sim/reqlog"
)

// signature is how agents sign the requests of a job.
var signature = regexp.MustCompile(`^Rackbus/\S+ \(job ([0-9a-f-]{36}); epoch (\d+)\)$`)

// Ledger is what the devices tell about the writes they have seen.
type Ledger struct {
	// Writes counts the writes of jobs, Unsigned those of no job.
	Writes   int
	Unsigned int
	// Stale are writes under an epoch below one that had written for the same job before.
	Stale []string
	// Overlaps are writes of a job to a device on which a later job had written already, and uploads that the device
	// took after another hold had written.
	Overlaps []string
	// Taken counts, per job, the uploads with which the device began an update.
	Taken map[string]int
	// Answered counts, per job, the uploads that were received as a whole and answered with success.
	Answered map[string]int
	// Jobs are the jobs that have written, in the order in which they began, by device.
	Jobs map[string][]string
}

// stamp is one write with its job and epoch.
type stamp struct {
	reqlog.Entry
	job   string
	epoch uint64
}

// Judge reads the writes of a rack. The entries of several devices may be mixed.
func Judge(entries []reqlog.Entry) Ledger {
	l := Ledger{Taken: map[string]int{}, Answered: map[string]int{}, Jobs: map[string][]string{}}
	byDevice := map[string][]stamp{}
	for _, e := range entries {
		if !e.Write() {
			continue
		}
		m := signature.FindStringSubmatch(e.UserAgent)
		if m == nil {
			l.Unsigned++
			continue
		}
		epoch, err := strconv.ParseUint(m[2], 10, 64)
		if err != nil {
			l.Unsigned++
			continue
		}
		l.Writes++
		byDevice[e.Device] = append(byDevice[e.Device], stamp{e, m[1], epoch})
		if e.Upload == nil {
			continue
		}
		if e.Upload.Task != "" {
			l.Taken[m[1]]++
		}
		if e.Complete && e.Status/100 == 2 {
			l.Answered[m[1]]++
		}
	}
	for device, stamps := range byDevice {
		l.judgeDevice(device, stamps)
	}
	slices.Sort(l.Stale)
	slices.Sort(l.Overlaps)
	return l
}

// judgeDevice goes through the writes of one device in the order in which they arrived.
func (l *Ledger) judgeDevice(device string, stamps []stamp) {
	slices.SortFunc(stamps, func(a, b stamp) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Seq, b.Seq))
	})
	epochs := map[string]uint64{}
	order := map[string]int{}
	for i, s := range stamps {
		if s.epoch < epochs[s.job] {
			l.Stale = append(l.Stale, fmt.Sprintf("%s: %s %s by job %s under epoch %d, after epoch %d",
				device, s.Method, s.Path, s.job, s.epoch, epochs[s.job]))
		}
		epochs[s.job] = max(epochs[s.job], s.epoch)
		n, seen := order[s.job]
		if !seen {
			n = len(l.Jobs[device])
			order[s.job] = n
			l.Jobs[device] = append(l.Jobs[device], s.job)
		}
		if last := len(l.Jobs[device]) - 1; n < last {
			l.Overlaps = append(l.Overlaps, fmt.Sprintf("%s: %s %s by job %s, after job %s had written",
				device, s.Method, s.Path, s.job, l.Jobs[device][last]))
		}
		if late := takenLate(s, stamps[i+1:]); late != nil {
			l.Overlaps = append(l.Overlaps, fmt.Sprintf("%s: upload by job %s under epoch %d was taken after job %s had written under epoch %d",
				device, s.job, s.epoch, late.job, late.epoch))
		}
	}
}

// takenLate returns the write of another hold during which an upload was still under way that the device then took.
func takenLate(s stamp, later []stamp) *stamp {
	if s.Upload == nil || s.Upload.Task == "" {
		return nil
	}
	// The device begins the update before it answers, and writes the answer at once.
	const answering = 250 * time.Millisecond
	end := s.End().Add(-answering)
	for i := range later {
		other := &later[i]
		if !other.Time.Before(end) {
			return nil
		}
		if other.job != s.job || other.epoch != s.epoch {
			return other
		}
	}
	return nil
}
