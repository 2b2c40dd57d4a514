// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

// programs are the processes that the chart knows, by component.
func programs() []string {
	return []string{"api", "jobs", "compute-agent", "switch-agent", "powershelf-agent"}
}

// workload is a Deployment or StatefulSet.
type workload struct {
	name, component string
	selector        *metav1.LabelSelector
	template        corev1.PodTemplateSpec
}

// release is what a set of values makes.
type release struct {
	workloads map[string]workload // by name
	services  map[string]corev1.Service
	policies  map[string]networkingv1.NetworkPolicy
	budgets   map[string]policyv1.PodDisruptionBudget
	configs   map[string]corev1.ConfigMap
	others    map[string]map[string]any // by kind
}

// install renders the chart and reads every manifest with the types of Kubernetes, which know no other keys.
func install(t *testing.T, name string) release {
	t.Helper()
	files, err := render(values(t, name))
	require.NoError(t, err)
	r := release{
		workloads: map[string]workload{}, services: map[string]corev1.Service{}, policies: map[string]networkingv1.NetworkPolicy{},
		budgets: map[string]policyv1.PodDisruptionBudget{}, configs: map[string]corev1.ConfigMap{}, others: map[string]map[string]any{},
	}
	for path, text := range files {
		if strings.HasSuffix(path, ".txt") {
			require.NotContains(t, text, "<no value>")
			continue
		}
		for _, doc := range regexp.MustCompile(`(?m)^---$`).Split(text, -1) {
			var head struct {
				metav1.TypeMeta
				Metadata metav1.ObjectMeta `json:"metadata"`
			}
			require.NoError(t, yaml.Unmarshal([]byte(doc), &head), "%s:\n%s", path, doc)
			if head.Kind != "" {
				r.add(t, head.Kind, head.Metadata.Name, []byte(doc))
			}
		}
	}
	return r
}

func (r *release) add(t *testing.T, kind, name string, doc []byte) {
	t.Helper()
	strict := func(into any) { require.NoError(t, yaml.UnmarshalStrict(doc, into), "%s %s", kind, name) }
	switch kind {
	case "Deployment":
		var d appsv1.Deployment
		strict(&d)
		r.workloads[name] = workload{name, d.Labels["app.kubernetes.io/component"], d.Spec.Selector, d.Spec.Template}
	case "StatefulSet":
		var s appsv1.StatefulSet
		strict(&s)
		r.workloads[name] = workload{name, s.Labels["app.kubernetes.io/component"], s.Spec.Selector, s.Spec.Template}
	case "Service":
		var s corev1.Service
		strict(&s)
		r.services[name] = s
	case "NetworkPolicy":
		var p networkingv1.NetworkPolicy
		strict(&p)
		r.policies[name] = p
	case "PodDisruptionBudget":
		var b policyv1.PodDisruptionBudget
		strict(&b)
		r.budgets[name] = b
	case "ConfigMap":
		var c corev1.ConfigMap
		strict(&c)
		r.configs[name] = c
	case "ServiceAccount":
		var a corev1.ServiceAccount
		strict(&a)
		require.False(t, *a.AutomountServiceAccountToken)
		r.others[kind] = map[string]any{}
	case "ServiceMonitor", "PrometheusRule":
		var other map[string]any
		strict(&other)
		r.others[kind] = other
	default:
		t.Fatalf("%s %s: the chart should not make this", kind, name)
	}
}

// each runs a check on every set of values.
func each(t *testing.T, check func(*testing.T, release)) {
	for _, name := range everyValues() {
		t.Run("values "+name, func(t *testing.T) { check(t, install(t, name)) })
	}
}

func (w *workload) container(t *testing.T) corev1.Container {
	t.Helper()
	require.Len(t, w.template.Spec.Containers, 1)
	require.Empty(t, w.template.Spec.InitContainers)
	return w.template.Spec.Containers[0]
}

func TestWhatIsMade(t *testing.T) {
	r := install(t, "")
	for _, p := range programs() {
		require.Contains(t, r.workloads, "rackbus-"+p)
	}
	require.Contains(t, r.workloads, "rackbus-nats-0")
	require.Len(t, r.workloads, 6)
	require.Len(t, r.policies, 6)
	require.Len(t, r.budgets, 6)
	require.Empty(t, r.others["ServiceMonitor"])

	r = install(t, "full")
	require.Len(t, r.workloads, 8)
	require.Contains(t, r.others, "ServiceMonitor")
	require.Contains(t, r.others["PrometheusRule"]["spec"], "groups")
	require.Contains(t, r.configs["rb-dashboard"].Data["rackbus.json"], `"title": "Rackbus"`)

	digits, err := yaml.Marshal(install(t, "digits").others["ServiceMonitor"])
	require.NoError(t, err)
	require.Contains(t, string(digits), `replacement: "007"`, "text, as its schema asks")

	r = install(t, "own-bus")
	require.Len(t, r.workloads, 3)
	require.NotContains(t, r.configs, "rackbus-nats")
}

// TestPodsAreHardened: nobody is root, nothing can be written but volumes, no token of Kubernetes.
func TestPodsAreHardened(t *testing.T) {
	each(t, func(t *testing.T, r release) {
		for name, w := range r.workloads {
			pod, c := w.template.Spec, w.container(t)
			require.False(t, *pod.AutomountServiceAccountToken, name)
			require.False(t, *pod.EnableServiceLinks, name)
			require.True(t, *pod.SecurityContext.RunAsNonRoot, name)
			require.EqualValues(t, 10001, *pod.SecurityContext.RunAsUser, name)
			require.EqualValues(t, 10001, *pod.SecurityContext.FSGroup, name)
			require.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type, name)
			require.False(t, pod.HostNetwork || pod.HostPID || pod.HostIPC, name)
			require.True(t, *c.SecurityContext.RunAsNonRoot, name)
			require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem, name)
			require.False(t, *c.SecurityContext.AllowPrivilegeEscalation, name)
			require.Equal(t, []corev1.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop, name)
			require.Empty(t, c.SecurityContext.Capabilities.Add, name)
			require.NotEmpty(t, c.Resources.Requests, name)
			require.NotEmpty(t, c.Resources.Limits, name)
		}
	})
}

func TestProbes(t *testing.T) {
	each(t, func(t *testing.T, r release) {
		for name, w := range r.workloads {
			c := w.container(t)
			ports := map[string]int32{}
			for _, p := range c.Ports {
				ports[p.Name] = p.ContainerPort
			}
			want := map[string]string{"live": "/healthz", "ready": "/readyz"}
			port := int32(8802)
			if w.component == "nats" {
				want = map[string]string{"live": "/healthz?js-enabled-only=true", "ready": "/healthz?js-server-only=true"}
				port = 8222
			}
			for kind, probe := range map[string]*corev1.Probe{"live": c.LivenessProbe, "ready": c.ReadinessProbe} {
				require.NotNil(t, probe, name)
				require.Equal(t, want[kind], probe.HTTPGet.Path, name)
				require.Equal(t, port, ports[probe.HTTPGet.Port.String()], name)
				require.Empty(t, probe.HTTPGet.Scheme, name)
			}
		}
	})
}

// TestSecretsAreNamed: what is secret comes from Secrets that the chart does not make, and into read-only mounts.
func TestSecretsAreNamed(t *testing.T) {
	each(t, func(t *testing.T, r release) {
		for name, w := range r.workloads {
			pod, c := w.template.Spec, w.container(t)
			secret := map[string]bool{}
			for _, v := range pod.Volumes {
				if v.Secret != nil || v.Projected != nil {
					secret[v.Name] = true
				}
				if v.Projected != nil {
					require.EqualValues(t, 0o440, *v.Projected.DefaultMode)
				}
			}
			require.NotEmpty(t, secret, name)
			for _, m := range c.VolumeMounts {
				if secret[m.Name] {
					require.True(t, m.ReadOnly, name)
					require.Empty(t, m.SubPath, "%s: a mount of one file does not follow a renewed certificate", name)
				}
			}
			for _, e := range c.Env {
				require.NotRegexp(t, `(?i)seed|password|token|AT_REST`, e.Name, name)
			}
		}
		for name, c := range r.configs {
			for file, text := range c.Data {
				require.NotContains(t, text, "PRIVATE KEY", "%s %s", name, file)
				require.NotRegexp(t, `\bS[UX][A-Z2-7]{56}\b`, text, "%s %s: a seed", name, file)
			}
		}
	})
}

// files are what a pod sees below a mount, by path: the key of the Secret it is from.
func (w *workload) files(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, m := range w.container(t).VolumeMounts {
		for _, v := range w.template.Spec.Volumes {
			if v.Name != m.Name || v.Projected == nil {
				continue
			}
			for _, s := range v.Projected.Sources {
				for _, item := range s.Secret.Items {
					path := m.MountPath + "/" + item.Path
					require.NotContains(t, out, path)
					out[path] = item.Key
				}
			}
		}
	}
	return out
}

var limits = regexp.MustCompile(`(?m)^(drain_timeout|last_release_limit) = "(\w+)"$`)

// TestProgramsTakeTheConfiguration gives the rendered configuration to the real programs, with the arguments of the pods, and
// looks at what they make of it.
func TestProgramsTakeTheConfiguration(t *testing.T) {
	bin := buildPrograms(t)
	each(t, func(t *testing.T, r release) {
		dir := t.TempDir()
		for name, w := range r.workloads {
			if w.component == "nats" {
				continue
			}
			config := ""
			for _, v := range w.template.Spec.Volumes {
				if v.ConfigMap != nil {
					config = r.configs[v.ConfigMap.Name].Data["config.toml"]
				}
			}
			require.NotEmpty(t, config)
			files := w.files(t)
			// The directories that a program looks for when it reads its configuration.
			config = strings.ReplaceAll(config, `"/etc/rackbus/switches"`, fmt.Sprintf("%q", dir))
			path := filepath.Join(dir, w.component+".toml")
			require.NoError(t, os.WriteFile(path, []byte(config), 0o600))
			args := append(slices.Clone(w.container(t).Args), "--print-config")
			require.Equal(t, "--config=/etc/rackbus/config/config.toml", args[0])
			args[0] = "--config=" + path
			out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "rackbus-"+w.component), args...).CombinedOutput()
			require.NoError(t, err, "%s: %s", name, out)
			requireFilesMounted(t, w.component, string(out), files)
			requireTimeToStop(t, &w, string(out))
			require.Contains(t, string(out), "firmware_dir = \"/srv/firmware\"")
		}
	})
}

// requireFilesMounted: every file that the configuration names is one that the pod mounts.
func requireFilesMounted(t *testing.T, component, config string, mounted map[string]string) {
	t.Helper()
	for path := range mounted {
		if strings.HasPrefix(path, "/etc/rackbus/switches/") {
			continue
		}
		// Files of keys are found by their directory.
		named := path
		if strings.HasPrefix(path, "/etc/rackbus/secrets/keys/") {
			named = "/etc/rackbus/secrets/keys"
		}
		require.Contains(t, config, fmt.Sprintf("%q", named), component)
	}
	for _, path := range regexp.MustCompile(`"(/etc/rackbus/secrets/[^"]+)"`).FindAllStringSubmatch(config, -1) {
		server := strings.HasPrefix(path[1], "/etc/rackbus/secrets/tls/server")
		if path[1] != "/etc/rackbus/secrets/keys" && (!server || component == "api") { // the others have no listener for callers
			require.Contains(t, mounted, path[1], component)
		}
	}
}

// requireTimeToStop: Kubernetes kills a pod only after what its program drains has ended.
func requireTimeToStop(t *testing.T, w *workload, config string) {
	t.Helper()
	needed := time.Duration(0)
	for _, found := range limits.FindAllStringSubmatch(config, -1) {
		d, err := time.ParseDuration(found[2])
		require.NoError(t, err)
		if found[1] == "drain_timeout" {
			needed = max(needed, d)
		}
		if found[1] == "last_release_limit" && w.component == "compute-agent" {
			needed += d
		}
	}
	require.NotZero(t, needed)
	require.Greater(t, time.Duration(*w.template.Spec.TerminationGracePeriodSeconds)*time.Second, needed, w.name)
}

// buildPrograms builds rackctl and the programs of this tree, which is a workspace of its own. They stay there, so that the
// next run builds what has changed.
func buildPrograms(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../bin/test-helm")
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	args := []string{"build", "-buildvcs=false", "-ldflags=-s -w", "-o", dir + "/", "./cmd/rackctl"}
	for _, p := range programs() {
		args = append(args, fmt.Sprintf("./services/%s/cmd/rackbus-%s", p, p))
	}
	run(t, "go", args...)
	return dir
}

func selects(t *testing.T, s *metav1.LabelSelector, w *workload) bool {
	t.Helper()
	selector, err := metav1.LabelSelectorAsSelector(s)
	require.NoError(t, err)
	return selector.Matches(labels.Set(w.template.Labels))
}

// TestSelectors: every object selects the pods it is about, and no others.
func TestSelectors(t *testing.T) {
	each(t, func(t *testing.T, r release) {
		for name, w := range r.workloads {
			for other, o := range r.workloads {
				require.Equal(t, name == other, selects(t, w.selector, &o), "%s selects the pods of %s", name, other)
			}
		}
		for name, p := range r.policies {
			requireSelectsComponent(t, r, name, p.Labels, &p.Spec.PodSelector)
		}
		for name, b := range r.budgets {
			require.Equal(t, intstr.FromInt32(1), *b.Spec.MaxUnavailable, name)
			requireSelectsComponent(t, r, name, b.Labels, b.Spec.Selector)
		}
		for name, s := range r.services {
			var selected []string
			for _, w := range r.workloads {
				if selects(t, &metav1.LabelSelector{MatchLabels: s.Spec.Selector}, &w) {
					selected = append(selected, w.component)
					requireTargetPorts(t, s, w.container(t))
				}
			}
			if s.Labels["app.kubernetes.io/component"] != "metrics" {
				require.Equal(t, []string{s.Labels["app.kubernetes.io/component"]}, selected, name)
			} else {
				processes := len(r.workloads) - len(slices.DeleteFunc(slices.Collect(maps.Values(r.workloads)), func(w workload) bool { return w.component != "nats" }))
				require.Len(t, selected, processes, name)
				require.NotContains(t, selected, "nats", name)
			}
			require.NotEmpty(t, selected, name)
		}
	})
}

func requireTargetPorts(t *testing.T, s corev1.Service, c corev1.Container) {
	t.Helper()
	for _, p := range s.Spec.Ports {
		require.True(t, slices.ContainsFunc(c.Ports, func(cp corev1.ContainerPort) bool {
			return cp.Name == p.TargetPort.String() || p.TargetPort.IntValue() == 0 && cp.ContainerPort == p.Port
		}), "%s: %s of %s", s.Name, p.Name, c.Name)
	}
}

func requireSelectsComponent(t *testing.T, r release, name string, l map[string]string, s *metav1.LabelSelector) {
	t.Helper()
	for _, w := range r.workloads {
		require.Equal(t, l["app.kubernetes.io/component"] == w.component, selects(t, s, &w), "%s and the pods of %s", name, w.name)
	}
}

// TestLinksLeadToTheAPI: links to evidence begin with the address of the console, which
// for a listener on all addresses would be localhost.
func TestLinksLeadToTheAPI(t *testing.T) {
	config := install(t, "").configs["rackbus"].Data["config.toml"]
	require.Contains(t, config, `base_url = "https://rackbus-api.racks.svc:8803"`)
}
