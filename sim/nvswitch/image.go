// SPDX-License-Identifier: Apache-2.0

package nvswitch

import (
	"cmp"
	"fmt"
	"net/http"
	"path"
	"regexp"
	"time"
)

const imagesDir = "/host/nos-images"

// imageState is the two partitions of the operating system.
type imageState struct {
	builds        [2]string
	current, next int
}

var buildVersion = regexp.MustCompile(`\d+\.\d+\.\d+`)

// ImageContent returns the content of an image file with a version such as "25.02.4440", at least size bytes long. What
// a file without such content installs comes from its name.
func ImageContent(version string, size int) []byte {
	head := "racksim-image: nvos-" + version + "\n"
	out := make([]byte, max(size, len(head)))
	copy(out, head)
	return out
}

// buildOf returns the build id that a file installs.
func (s *Switch) buildOf(file string) (build, sum string, err error) {
	head, sum, err := s.digest(path.Join(imagesDir, file))
	if err != nil {
		return "", "", err
	}
	if m := contentVersion.FindSubmatch(head); m != nil {
		return "nvos-" + string(m[1]), sum, nil
	}
	version := buildVersion.FindString(file)
	if version == "" {
		return "", "", fmt.Errorf("%s has no version in its name", file)
	}
	return "nvos-" + version, sum, nil
}

var contentVersion = regexp.MustCompile(`^racksim-image: nvos-(\d+\.\d+\.\d+)\n`)

func addImages(at route) {
	at("GET", "/system/image", func(s *Switch, _ *call) reply {
		partition := func(i int) object { return object{"build-id": s.images.builds[i]} }
		return ok(object{
			"current": fmt.Sprint(s.images.current + 1), "next": fmt.Sprint(s.images.next + 1),
			"partition1": partition(0), "partition2": partition(1),
		})
	})
	at("POST", "/system/image", post(map[string]func(*Switch, *call) reply{"@uninstall": uninstall, "@fetch": fetchImage}))
	at("GET", "/system/image/files", func(s *Switch, _ *call) reply {
		out := object{}
		for _, name := range s.list(imagesDir) {
			out[name] = object{"path": path.Join(imagesDir, name)}
		}
		return ok(out)
	})
	at("POST", "/system/image/files/{file}", post(map[string]func(*Switch, *call) reply{"@install": installImage}))
}

// uninstall clears the partition that does not run.
func uninstall(s *Switch, c *call) reply {
	return s.start(c, s.timing.Action, func(time.Time, *action) outcome {
		unused := 1 - s.images.current
		if s.images.builds[unused] == "" {
			return failedAction("Nothing to uninstall")
		}
		s.images.builds[unused] = ""
		s.images.next = s.images.current
		return succeeded()
	})
}

func fetchImage(s *Switch, c *call) reply {
	source, file := c.parameter("remote-url"), path.Base(c.parameter("remote-url"))
	return s.start(c, s.timing.Action, func(time.Time, *action) outcome {
		if err := s.copyIn(source, path.Join(imagesDir, file)); err != nil {
			return failedAction(err.Error())
		}
		return succeeded()
	})
}

// installImage writes the partition that does not run. Forced, it reboots unless the request says otherwise.
func installImage(s *Switch, c *call) reply {
	file := c.r.PathValue("file")
	if c.parameter("image-file") != file {
		return refusal(http.StatusBadRequest, "The parameter image-file differs from the path.")
	}
	force, _ := c.parameters["force"].(bool)
	reboots := force && c.parameter("reboot") != "no"
	return s.start(c, s.timing.Install, func(now time.Time, a *action) outcome {
		build, sum, err := s.buildOf(file)
		if err != nil {
			return failedAction("the image file cannot be installed: " + err.Error())
		}
		target := 1 - s.images.current
		s.images.builds[target], s.images.next = build, target
		s.installs = append(s.installs, Install{File: file, SHA256: sum, BuildID: build, Forced: reboots})
		if !reboots {
			return succeeded()
		}
		s.reboot(now, bootPlan{})
		return outcome{
			state: "action_running", status: "installed",
			detail: "Image " + build + " is installed. Disconnecting from NVOS, offline during reboot.",
		}
	})
}

// bootImage switches to the next image and reports whether that is another one.
func (s *Switch) bootImage() bool {
	if s.knobs.BootOldImage {
		return false
	}
	last := s.images.builds[s.images.current]
	s.images.current = s.images.next
	s.images.builds[s.images.current] = cmp.Or(s.knobs.BootImage, s.images.builds[s.images.current])
	return s.images.builds[s.images.current] != last
}

// Images are the build ids of the running and the next image, and of both partitions.
type Images struct {
	Current, Next string
	Partitions    [2]string
}

// Images returns the state of the images.
func (s *Switch) Images() Images {
	s.lock()
	defer s.mu.Unlock()
	i := s.images
	return Images{Current: i.builds[i.current], Next: i.builds[i.next], Partitions: i.builds}
}
