// SPDX-License-Identifier: Apache-2.0

package diagnostics

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/rackbus/rackbus/pkg/job"
)

// manifestVersion is the version of the manifest's layout.
const manifestVersion = 1

// Manifest says what a bundle has, and how it came about. It is stored twice: as
// the bundle's last entry, and beside the bundle with the bundle's own size and
// digest, once the bundle is stored.
type Manifest struct {
	Version    int       `json:"version"`
	JobID      string    `json:"job_id"`
	AboutJobID string    `json:"about_job_id,omitempty"`
	RackID     string    `json:"rack_id"`
	NodeID     string    `json:"node_id"`
	NodeType   string    `json:"node_type"`
	StartedAt  time.Time `json:"started_at"`
	FinishedAt time.Time `json:"finished_at"`
	// Rackbus is the version of the agent.
	Rackbus string `json:"rackbus_version"`
	// Failure is why the run itself failed, null when it did not.
	Failure *ManifestFailure `json:"failure"`
	// Finding is null for a run that could not classify.
	Finding    *Finding            `json:"finding"`
	Collectors []ManifestCollector `json:"collectors"`
	State      ManifestState       `json:"state"`
	Files      []ManifestFile      `json:"files"`
	// Bundle is set in the copy beside the bundle.
	Bundle *ManifestBundle `json:"bundle,omitempty"`
}

// ManifestFailure is the failure of a diagnostics run.
type ManifestFailure struct {
	FailureCode job.FailureCode `json:"failure_code"`
	Message     string          `json:"message"`
}

// ManifestCollector is what one collector did.
type ManifestCollector struct {
	Name      string  `json:"name"`
	Required  bool    `json:"required"`
	Status    string  `json:"status"`
	Message   string  `json:"message,omitempty"`
	DurationS float64 `json:"duration_seconds"`
}

// ManifestState is the state of the node around the collection.
type ManifestState struct {
	Before Fingerprint `json:"before"`
	After  Fingerprint `json:"after"`
	// Changes is empty when the node stayed as it was.
	Changes []string `json:"changes"`
}

// ManifestFile is one file of the bundle.
type ManifestFile struct {
	Name      string `json:"name"`
	Collector string `json:"collector"`
	Size      int64  `json:"size"`
	SHA256    string `json:"sha256,omitempty"`
	// Truncated says that the end of the file is missing, Omitted that all of it is.
	Truncated    bool  `json:"truncated,omitempty"`
	Omitted      bool  `json:"omitted,omitempty"`
	OriginalSize int64 `json:"original_size"`
}

// ManifestBundle is the bundle as it lies in the store.
type ManifestBundle struct {
	Filename    string    `json:"filename"`
	ContentType string    `json:"content_type"`
	Size        int64     `json:"size"`
	SHA256      string    `json:"sha256"`
	WrittenAt   time.Time `json:"written_at"`
}

func (m *Manifest) encode() ([]byte, error) {
	raw, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode manifest: %w", err)
	}
	return append(raw, '\n'), nil
}

// ParseManifest reads the manifest of a stored bundle.
func ParseManifest(raw []byte) (Manifest, error) {
	var m Manifest
	if err := json.Unmarshal(raw, &m); err != nil {
		return Manifest{}, fmt.Errorf("decode manifest: %w", err)
	}
	if m.Version != manifestVersion {
		return Manifest{}, fmt.Errorf("manifest has version %d, this program knows %d", m.Version, manifestVersion)
	}
	if m.Bundle == nil {
		return Manifest{}, fmt.Errorf("manifest of job %s names no bundle", m.JobID)
	}
	return m, nil
}

func manifestCollectors(outcomes []job.CollectorOutcome) []ManifestCollector {
	out := make([]ManifestCollector, len(outcomes))
	for i, o := range outcomes {
		out[i] = ManifestCollector{o.Name, o.Required, o.Status.String(), o.Message, o.Duration.Seconds()}
	}
	return out
}

// Filename is what a bundle is called when it is downloaded: letters, digits,
// dashes, dots and underscores only, so that it is safe in URLs and headers.
func Filename(rackID, nodeID string, id job.ID) string {
	const most = 40
	plain := func(text string) string {
		text = strings.Map(func(r rune) rune {
			switch {
			case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
				return r
			}
			return '-'
		}, text)
		return text[:min(len(text), most)]
	}
	return fmt.Sprintf("diagnostics_%s_%s_%s.tar.gz", plain(rackID), plain(nodeID), id)
}
