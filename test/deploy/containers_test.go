// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"debug/elf"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// long also builds the programs of the images, which compiles everything anew.
var long = flag.Bool("long", false, "build all programs as the Dockerfile does")

const (
	repository = "../.."
	dockerDir  = "../../deploy/docker"
)

// stage of a Dockerfile.
type stage struct {
	from string
	// lines are instructions with their arguments.
	lines [][2]string
}

func (s stage) all(instruction string) []string {
	var out []string
	for _, l := range s.lines {
		if l[0] == instruction {
			out = append(out, l[1])
		}
	}
	return out
}

func (s stage) list(t *testing.T, instruction string) []string {
	t.Helper()
	found := s.all(instruction)
	require.Len(t, found, 1, instruction)
	var out []string
	require.NoError(t, json.Unmarshal([]byte(found[0]), &out), found[0])
	return out
}

// dockerfile reads the stages, by name.
func dockerfile(t *testing.T) map[string]stage {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dockerDir, "Dockerfile"))
	require.NoError(t, err)
	known := []string{"FROM", "ARG", "WORKDIR", "COPY", "RUN", "USER", "EXPOSE", "ENTRYPOINT", "CMD", "VOLUME", "LABEL"}
	out, name := map[string]stage{}, ""
	joined := strings.ReplaceAll(string(text), "\\\n", " ")
	for line := range strings.Lines(joined) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		instruction, rest, _ := strings.Cut(line, " ")
		require.Contains(t, known, instruction)
		if instruction == "FROM" {
			from, as, named := strings.Cut(rest, " AS ")
			require.True(t, named, line)
			name = as
			out[name] = stage{from: from}
			continue
		}
		s := out[name]
		s.lines = append(s.lines, [2]string{instruction, rest})
		out[name] = s
	}
	return out
}

// programStages are those that end in an image.
func programStages(t *testing.T) map[string]stage {
	out := dockerfile(t)
	for name, s := range out {
		if s.from != "base" {
			delete(out, name)
		}
	}
	require.Len(t, out, 9)
	return out
}

// builds are the go build commands of the build stage.
func builds(t *testing.T) [][]string {
	t.Helper()
	var out [][]string
	for _, run := range dockerfile(t)["build"].all("RUN") {
		if _, command, found := strings.Cut(run, " CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} go build "); found {
			command = regexp.MustCompile(`-ldflags "[^"]*"`).ReplaceAllString(command, "")
			out = append(out, strings.Fields(command))
		}
	}
	require.Len(t, out, 2)
	return out
}

func TestImages(t *testing.T) {
	stages := dockerfile(t)
	require.Equal(t, "scratch", stages["base"].from)
	require.Equal(t, []string{"10001:10001"}, stages["base"].all("USER"))
	gomod, err := os.ReadFile(filepath.Join(repository, "go.work"))
	require.NoError(t, err)
	require.Equal(t, "--platform=$BUILDPLATFORM golang:${GO}", stages["build"].from)
	release := stages[""].all("ARG")
	require.Len(t, release, 1, "before the first stage")
	require.Contains(t, string(gomod), "go "+strings.TrimPrefix(release[0], "GO=")+".", "the newest patch of the release")
	for _, dir := range []string{"/var/lib/rackbus/", "/var/lib/rackbus-nats/", "/srv/firmware/"} {
		require.Contains(t, stages["base"].all("COPY"), "--from=build --chown=10001:10001 /empty/ "+dir)
	}

	built := []string{"nats-server"}
	for _, arg := range builds(t)[0] {
		if strings.HasPrefix(arg, "./") {
			require.FileExists(t, filepath.Join(repository, arg, "main.go"))
			built = append(built, filepath.Base(arg))
		}
	}
	var shown []string
	for name, s := range programStages(t) {
		copied := s.all("COPY")
		require.Len(t, copied, 1, name)
		program := strings.TrimSuffix(strings.TrimPrefix(copied[0], "--from=build /out/"), " /usr/local/bin/")
		require.Contains(t, built, program, name)
		require.Equal(t, []string{"/usr/local/bin/" + program}, s.list(t, "ENTRYPOINT"), name)
		require.Empty(t, s.all("USER"), "the user is that of the base")
		shown = append(shown, program)
	}
	require.ElementsMatch(t, built, shown)
}

// TestImagesHaveTheCommandsOfTheUnits: a process starts in a container as under systemd.
func TestImagesHaveTheCommandsOfTheUnits(t *testing.T) {
	stages := programStages(t)
	for name, u := range units(t) {
		target := strings.TrimPrefix(name, "rackbus-")
		if name == "rackbus" {
			target = "standalone"
		}
		s, there := stages[target]
		require.True(t, there, target)
		command := strings.Join(slices.Concat(s.list(t, "ENTRYPOINT"), s.list(t, "CMD")), " ")
		exec := strings.ReplaceAll(u.one(t, "Service.ExecStart"), "${RB_NATS_CONF}", "/etc/rackbus/nats/single.conf")
		require.Equal(t, exec, command)
	}
}

// TestBuildsSeeNoSecrets: what the lab of compose.yaml has made beside the Dockerfile
// stays out of builds, as it stays out of git.
func TestBuildsSeeNoSecrets(t *testing.T) {
	patterns := func(name string) []string {
		text, err := os.ReadFile(filepath.Join(dockerDir, name))
		require.NoError(t, err)
		return strings.Fields(string(text))
	}
	ignored := patterns("Dockerfile.dockerignore")
	for _, made := range patterns(".gitignore") {
		require.Contains(t, ignored, "deploy/docker/"+strings.Trim(made, "/"))
	}
	require.Subset(t, ignored, []string{"**/*.env", "**/*.key", "**/*.seed"})
}

// TestProgramsNeedNoC: nothing that the images run needs a C library.
func TestProgramsNeedNoC(t *testing.T) {
	for _, args := range builds(t) {
		packages, dir := []string{}, repository
		for i, arg := range args {
			switch {
			case arg == "-C":
				dir = filepath.Join(repository, args[i+1])
			case strings.HasPrefix(arg, "./"), strings.HasPrefix(arg, "github.com/"):
				packages = append(packages, arg)
			}
		}
		list := exec.CommandContext(t.Context(), "go", append([]string{"list", "-deps", "-f", "{{if .CgoFiles}}{{.ImportPath}}{{end}}"}, packages...)...)
		list.Dir, list.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
		out, err := list.Output()
		require.NoError(t, err)
		require.Empty(t, strings.TrimSpace(string(out)))
		if *long {
			buildStatic(t, dir, packages)
		}
	}
}

func buildStatic(t *testing.T, dir string, packages []string) {
	t.Helper()
	out := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", append([]string{"build", "-trimpath", "-buildvcs=false", "-o", out + "/"}, packages...)...)
	build.Dir, build.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	text, err := build.CombinedOutput()
	require.NoError(t, err, "%s", text)
	programs, err := os.ReadDir(out)
	require.NoError(t, err)
	require.Len(t, programs, len(packages))
	for _, p := range programs {
		f, err := elf.Open(filepath.Join(out, p.Name()))
		require.NoError(t, err)
		for _, segment := range f.Progs {
			require.NotEqual(t, elf.PT_INTERP, segment.Type, "%s is linked dynamically", p.Name())
		}
		require.NoError(t, f.Close())
	}
}

// TestCompose: every service has a target of the Dockerfile, what bootstrap has made for it, and no rights.
func TestCompose(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(dockerDir, "compose.yaml"))
	require.NoError(t, err)
	var file struct {
		Services map[string]struct {
			Image string `json:"image"`
			Build struct {
				Context, Dockerfile, Target string
			} `json:"build"`
			ReadOnly    bool     `json:"read_only"`
			CapDrop     []string `json:"cap_drop"`
			SecurityOpt []string `json:"security_opt"`
			EnvFile     string   `json:"env_file"`
			Volumes     []string `json:"volumes"`
			DependsOn   []string `json:"depends_on"`
		} `json:"services"`
		Volumes map[string]any `json:"volumes"`
	}
	require.NoError(t, yaml.Unmarshal(text, &file))
	require.Len(t, file.Services, 7)
	chown := regexp.MustCompile(`chown -R 10001:10001 firmware site/install/\{nats/tls,([a-z,-]+)\}`).FindStringSubmatch(string(text))
	require.NotNil(t, chown, "nats.env stays with the user, whose docker command reads it")
	owned := strings.Split(chown[1], ",")
	install := siteForUnits(t)
	stages := programStages(t)
	for name, s := range file.Services {
		require.Contains(t, stages, s.Build.Target)
		require.Equal(t, name, s.Build.Target)
		require.Equal(t, "rackbus/"+name, s.Image)
		require.FileExists(t, filepath.Join(dockerDir, s.Build.Context, s.Build.Dockerfile))
		require.True(t, s.ReadOnly, name)
		require.Equal(t, []string{"ALL"}, s.CapDrop, name)
		require.Equal(t, []string{"no-new-privileges:true"}, s.SecurityOpt, name)
		sources := []string{}
		for _, v := range s.Volumes {
			source, target, _ := strings.Cut(v, ":")
			sources = append(sources, source)
			switch {
			case strings.HasPrefix(source, "./site/install/"):
				require.Equal(t, "/etc/rackbus/"+name+":ro", target)
				require.DirExists(t, filepath.Join(install, strings.TrimPrefix(source, "./site/install/")))
			case source != "./firmware":
				require.Contains(t, file.Volumes, source)
			}
		}
		if name == "racksim" {
			require.Equal(t, []string{"./firmware"}, sources, "it gets no secret")
			continue
		}
		require.Contains(t, sources, "./site/install/"+name)
		if name == "nats" {
			require.FileExists(t, filepath.Join(install, strings.TrimPrefix(s.EnvFile, "./site/install/")))
			continue
		}
		require.Equal(t, []string{"nats"}, s.DependsOn)
		require.Contains(t, owned, name)
	}
}
