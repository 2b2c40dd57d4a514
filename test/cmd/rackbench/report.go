// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// report is all that was measured.
type report struct {
	Machine machine   `json:"machine"`
	Started time.Time `json:"started"`
	// LoadBefore is the machine's load average before the run: numbers taken
	// beside other work are worth little.
	LoadBefore   float64       `json:"load_before"`
	Took         time.Duration `json:"took_ns"`
	Registration time.Duration `json:"registration_ns,omitempty"`
	Reads        []comparison  `json:"reads,omitempty"`
	Update       *update       `json:"update,omitempty"`
	Folds        []foldRate    `json:"folds,omitempty"`

	// readsTitled says that the heading of the reads was printed.
	readsTitled bool
}

func (r *report) printHeader(w io.Writer) {
	m := r.Machine
	fmt.Fprintf(w, "Machine: %d cores (%s), %.1f GiB, Linux %s, %s; load before the run %.2f\n",
		m.Cores, m.CPU, gib(m.Memory), m.Kernel, m.Go, r.LoadBefore)
	fmt.Fprintf(w, "Rackbus: rackbus serve with %s; gRPC over mutual TLS, embedded bus with sync always and at-rest encryption\n",
		strings.Join(memorySettings, " "))
}

func (r *report) printRegistration(w io.Writer, nodes int) {
	fmt.Fprintf(w, "CreateNodes: %d nodes in %s\n", nodes, short(r.Registration))
}

func (r *report) printReads(w io.Writer, c *comparison) {
	if !r.readsTitled {
		r.readsTitled = true
		fmt.Fprintf(w, "\n   %-24s %6s %-5s | %26s | %26s | %5s %s\n", "", "", "conns", "through Rackbus", "plain Go client", "", "")
		fmt.Fprintf(w, "   %-24s %6s %-5s | %8s %8s %8s | %8s %8s %8s | %5s %s\n", "operation", "nodes", "",
			"calls/s", "p50", "p99", "calls/s", "p50", "p99", "ratio", "goal")
	}
	fmt.Fprintf(w, "%s  %-24s %6d %-5s | %8.0f %8s %8s | %8.0f %8s %8s | %5.2f >= %.1f %s\n", c.Part, c.Operation, c.Nodes,
		c.Connections, c.Rackbus.PerSecond, short(c.Rackbus.P50), short(c.Rackbus.P99),
		c.Direct.PerSecond, short(c.Direct.P50), short(c.Direct.P99), c.Ratio, c.Goal, verdict(c.met()))
	fmt.Fprintf(w, "   CPU per call: caller %s, rackbus %s, racksim %s; plain client %s, racksim %s\n",
		short(c.Rackbus.CPU.Bench), short(c.Rackbus.CPU.Rackbus), short(c.Rackbus.CPU.Racksim),
		short(c.Direct.CPU.Bench), short(c.Direct.CPU.Racksim))
}

func (r *report) printUpdate(w io.Writer) {
	u := r.Update
	fmt.Fprintf(w, "\nc  BatchUpdateFirmware, %d nodes, each task takes %s: %s\n", u.Nodes, u.TaskDuration, u.Description)
	fmt.Fprintf(w, "   %-34s %10s   goal <  %s %s\n", "answer", short(u.Answer), goalAnswer, verdict(u.Answer < goalAnswer))
	fmt.Fprintf(w, "   %-34s %10s   (GetJobStatus meanwhile: p50 %s, p99 %s)\n", "all jobs terminal, through Rackbus",
		short(u.Rackbus), short(u.StatusP50), short(u.StatusP99))
	fmt.Fprintf(w, "   %-34s %10s\n", "all updated, plain Go client", short(u.Direct))
	fmt.Fprintf(w, "   %-34s %10.2f   goal <= %.1f %s\n", "ratio", u.Ratio, goalUpdate, verdict(u.Ratio <= goalUpdate))
	fmt.Fprintf(w, "   %-34s %7.2fGiB   goal <  1 GiB %s\n", "peak memory of Rackbus (RSS)", gib(u.PeakRSS), verdict(u.PeakRSS < goalMemory))
	fmt.Fprintf(w, "   requests of one update: %d through Rackbus, %d direct\n", u.RequestsRackbus, u.RequestsDirect)
	fmt.Fprintf(w, "   CPU: rackbus %s + racksim %s; plain client %s + racksim %s\n",
		short(u.CPURackbus), short(u.CPUSimRackbus), short(u.CPUDirect), short(u.CPUSimDirect))
}

func (r *report) printFold(w io.Writer, f *foldRate) {
	fmt.Fprintf(w, "d  fold, %d broker(s), one partition, %d events: %.0f events/s, %.0f events/s until published   goal >= %d %s\n",
		f.Replicas, f.Events, f.PerSecond, f.PublishedPerSecond, goalFold, verdict(f.met()))
}

// printVerdict lists what missed its goal.
func (r *report) printVerdict(w io.Writer) {
	var missed []string
	for _, c := range r.Reads {
		if !c.met() {
			missed = append(missed, fmt.Sprintf("%s: %s of %d nodes, %s connections: ratio %.2f", c.Part, c.Operation, c.Nodes, c.Connections, c.Ratio))
		}
	}
	if u := r.Update; u != nil {
		if u.Answer >= goalAnswer {
			missed = append(missed, "c: answer after "+short(u.Answer))
		}
		if u.Ratio > goalUpdate {
			missed = append(missed, fmt.Sprintf("c: ratio %.2f", u.Ratio))
		}
		if u.PeakRSS >= goalMemory {
			missed = append(missed, fmt.Sprintf("c: peak memory %.2f GiB", gib(u.PeakRSS)))
		}
	}
	for _, f := range r.Folds {
		if !f.met() {
			missed = append(missed, fmt.Sprintf("d: %d broker(s): %.0f events/s", f.Replicas, f.PerSecond))
		}
	}
	fmt.Fprintf(w, "\nTook %s.", r.Took.Round(time.Second))
	if len(missed) == 0 {
		fmt.Fprintln(w, " All goals met.")
		return
	}
	fmt.Fprintln(w, " Goals missed (docs/performance.md says why):")
	for _, m := range missed {
		fmt.Fprintln(w, "  ", m)
	}
}

func (r *report) write(path string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

func verdict(met bool) string {
	if met {
		return "met"
	}
	return "MISSED"
}

func gib(bytes int64) float64 { return float64(bytes) / (1 << 30) }

// short rounds a duration to three digits or so.
func short(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d >= 100*time.Millisecond:
		return d.Round(time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	default:
		return d.Round(time.Microsecond).String()
	}
}
