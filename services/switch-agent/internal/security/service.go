// SPDX-License-Identifier: Apache-2.0

package security

import (
	"fmt"
	"slices"
)

// Service is a service of a switch that takes a certificate, by its label.
type Service string

// The services.
const (
	ServiceNVUE      Service = "nvue-api"
	ServiceTelemetry Service = "scale-up-fabric-telemetry"
	ServiceManager   Service = "scale-up-fabric-manager"
	ServiceGNMI      Service = "scale-up-fabric-telemetry-interface"
)

// App is the app of the cluster that stands behind the service, empty for the
// services of NVOS itself.
func (s Service) App() string {
	switch s {
	case ServiceTelemetry:
		return "nmx-telemetry"
	case ServiceManager:
		return "nmx-controller"
	case ServiceNVUE, ServiceGNMI:
		return ""
	default:
		return ""
	}
}

// ServiceOf is the service that an app of the cluster stands behind, empty for other
// apps.
func ServiceOf(app string) Service {
	for _, s := range []Service{ServiceTelemetry, ServiceManager} {
		if s.App() == app {
			return s
		}
	}
	return ""
}

// InstalledName is how a certificate names the service among those that use it;
// empty when it does not.
func (s Service) InstalledName() string {
	switch s {
	case ServiceNVUE:
		return "nvue-rest-api"
	case ServiceGNMI:
		return "gnmi-server"
	case ServiceTelemetry, ServiceManager:
		return ""
	default:
		return ""
	}
}

// ParseServices reads labels; repetitions are dropped.
func ParseServices(labels []string) ([]Service, error) {
	var out []Service
	for _, label := range labels {
		s := Service(label)
		switch s {
		case ServiceNVUE, ServiceTelemetry, ServiceManager, ServiceGNMI:
		default:
			return nil, fmt.Errorf("unknown switch service %q", label)
		}
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no switch service is named")
	}
	return out, nil
}

// Labels are the labels of services, never nil.
func Labels(services []Service) []string {
	out := make([]string, len(services))
	for i, s := range services {
		out[i] = string(s)
	}
	return out
}
