// SPDX-License-Identifier: Apache-2.0

package access

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	oldreflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/protobuf/reflect/protoreflect"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/proto/rackmanagerv2"
)

// served are the files of all services that the API offers.
var served = []protoreflect.FileDescriptor{
	rackmanager.File_rack_manager_proto, rackmanagerv2.File_rack_manager_v2_proto,
	rackbusv1.File_rackbus_v1_jobs_service_proto, rackbusv1.File_rackbus_v1_firmware_service_proto,
	rackbusv1.File_rackbus_v1_access_service_proto,
	healthpb.File_grpc_health_v1_health_proto, reflectionpb.File_grpc_reflection_v1_reflection_proto,
	oldreflectionpb.File_grpc_reflection_v1alpha_reflection_proto,
}

// TestEveryMethodHasARule holds the table against the descriptors, both ways.
func TestEveryMethodHasARule(t *testing.T) {
	t.Parallel()
	var all []string
	for _, file := range served {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				all = append(all, "/"+string(service.FullName())+"/"+string(service.Methods().Get(j).Name()))
			}
		}
	}
	slices.Sort(all)
	require.Equal(t, all, slices.Collect(Methods()))
}

// What is named like a read must be one, and what is not must leave a record.
func TestRulesFollowTheNames(t *testing.T) {
	t.Parallel()
	exceptions := map[string]Rule{
		"CheckFirmwarePlan": changes, "WhoAmI": reads, "CompareFirmwareObject": reads, "ListAuditRecords": inspects,
		"BatchCollectSwitchSpdmAttestationEvidence": reads,
	}
	for method := range Methods() {
		rule, ok := RuleOf(method)
		require.True(t, ok)
		name := method[strings.LastIndexByte(method, '/')+1:]
		want := changes
		switch {
		case strings.HasPrefix(method, "/grpc.health."):
			want = anybody
		case strings.HasPrefix(method, "/grpc.reflection."):
			want = reads
		case strings.HasPrefix(strings.TrimPrefix(name, "Batch"), "Get"), strings.HasPrefix(name, "List"), strings.HasPrefix(name, "Watch"):
			want = reads
		}
		if e, listed := exceptions[name]; listed {
			want = e
		}
		require.Equal(t, want, rule, method)
		if strings.HasPrefix(method, published) || strings.HasPrefix(method, publishedV2) {
			require.LessOrEqual(t, rule.Least, Operator, "clients of the published API know of no roles")
		}
	}
	_, ok := RuleOf("/rack_manager.RackManager/OfALaterVersion")
	require.False(t, ok)
}
