// SPDX-License-Identifier: Apache-2.0

package nvue

import (
	"context"
	"encoding/json"
	"strings"
)

// The partitions of the system image.
const (
	Partition1 = "partition1"
	Partition2 = "partition2"
)

// ImageState is what is installed, what runs, and what runs after a reboot.
type ImageState struct {
	// Current and Next are as the switch gave them.
	Current string
	Next    string
	// CurrentPartition and NextPartition are Partition1 or Partition2, or empty when
	// they cannot be told.
	CurrentPartition string
	NextPartition    string
	// The build ids; empty for an empty partition.
	CurrentBuild    string
	NextBuild       string
	Partition1Build string
	Partition2Build string
}

// UnusedPartition is the one that does not run, with its build id. It is empty
// when the running one cannot be told.
func (s ImageState) UnusedPartition() (partition, build string) {
	switch s.CurrentPartition {
	case Partition1:
		return Partition2, s.Partition2Build
	case Partition2:
		return Partition1, s.Partition1Build
	default:
		return "", ""
	}
}

// Image reads the system image state.
func (c *Client) Image(ctx context.Context) (ImageState, error) {
	raw, err := c.get(ctx, "read system image", resource("system", "image"))
	if err != nil {
		return ImageState{}, err
	}
	return imageState(raw), nil
}

func imageState(raw json.RawMessage) ImageState {
	d := asDocument(raw)
	s := ImageState{
		Current: strings.TrimSpace(d.text("current")), Next: strings.TrimSpace(d.text("next")),
		Partition1Build: buildID(d, Partition1), Partition2Build: buildID(d, Partition2),
	}
	s.CurrentPartition, s.CurrentBuild = s.locate(s.Current)
	s.NextPartition, s.NextBuild = s.locate(s.Next)
	return s
}

func buildID(d document, partition string) string {
	if id := d.text(partition); id != "" {
		return strings.TrimSpace(id)
	}
	return strings.TrimSpace(d.object(partition).text("build-id"))
}

// locate turns "1", "partition1" or a build id into both.
func (s ImageState) locate(named string) (partition, build string) {
	builds := map[string]string{Partition1: s.Partition1Build, Partition2: s.Partition2Build}
	switch named {
	case "1", Partition1:
		partition = Partition1
	case "2", Partition2:
		partition = Partition2
	case "":
		return "", ""
	default:
		for _, p := range [...]string{Partition1, Partition2} {
			if builds[p] == named {
				return p, named
			}
		}
		return "", named
	}
	if build = builds[partition]; build == "" {
		build = named
	}
	return partition, build
}

// ImageFiles reads the list of image files as the switch gives it.
func (c *Client) ImageFiles(ctx context.Context) (json.RawMessage, error) {
	return c.get(ctx, "list system images", resource("system", "image", "files"))
}

// ListsFile reports whether a file name occurs as a string or as a key anywhere
// in a listing; the forms of listings differ between releases.
func ListsFile(listing json.RawMessage, name string) bool { return listsFile(listing, name, 0) }

func listsFile(raw json.RawMessage, name string, depth int) bool {
	raw = trim(raw)
	if len(raw) == 0 || depth > maxDepth {
		return false
	}
	switch raw[0] {
	case '"':
		s, _ := scalar(raw)
		return s == name
	case '[':
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) != nil {
			return false
		}
		for _, e := range list {
			if listsFile(e, name, depth+1) {
				return true
			}
		}
	case '{':
		for key, value := range asDocument(raw) {
			if key == name || listsFile(value, name, depth+1) {
				return true
			}
		}
	}
	return false
}

// UninstallImage removes the image of the partition that does not run.
func UninstallImage() Action {
	return Action{what: "uninstall system image", path: resource("system", "image"), verb: "uninstall", params: forced{true}, named: true}
}

// FetchImage lets the switch fetch an image file from a URL.
func FetchImage(url string) Action {
	return Action{what: "fetch system image", path: resource("system", "image"), verb: "fetch", params: remote{url}, named: true}
}

type remote struct {
	URL string `json:"remote-url"`
}

// InstallImage installs an image file that lies on the switch, and reboots it.
func InstallImage(file string) Action {
	params := struct {
		Force bool   `json:"force"`
		File  string `json:"image-file"`
	}{true, file}
	return Action{what: "install system image", path: imageFile(file), verb: "install", params: params, named: true}
}

// InstallImageOnly installs an image file without a reboot.
func InstallImageOnly(file string) Action {
	params := struct {
		Force  bool   `json:"force"`
		Reboot string `json:"reboot"`
		File   string `json:"image-file"`
	}{false, "no", file}
	return Action{what: "install system image without reboot", path: imageFile(file), verb: "install", params: params, named: true}
}

func imageFile(file string) string { return resource("system", "image", "files", file) }
