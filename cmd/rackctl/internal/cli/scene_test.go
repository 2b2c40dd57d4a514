// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// The job that most tests are about.
const batchID = "72f5b1f8-2fe2-44b9-af0d-891b00000000"

// childID is the id of a child: the last eight digits are its number.
func childID(n int) string { return fmt.Sprintf("%s%08x", batchID[:len(batchID)-8], n) }

func ago(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(noon.Add(-d)) }

// registered is the inventory of two racks.
func registered() *rackmanager.ListNodeInventoryResponse {
	resp := &rackmanager.ListNodeInventoryResponse{}
	add := func(rack, id string, t rackmanager.NodeType, last int) {
		resp.Nodes = append(resp.Nodes, &rackmanager.NodeInventoryInfo{
			RackId: rack, NodeId: id, Type: t, IpAddress: fmt.Sprintf("10.0.0.%d", last), Port: 443,
			MacAddress: fmt.Sprintf("02:00:00:00:00:%02x", last),
		})
	}
	for i := 1; i <= 4; i++ {
		add("lab", fmt.Sprintf("tray-%02d", i), rackmanager.NodeType_COMPUTE_GB200_NVIDIA, i)
	}
	add("lab", "switch-01", rackmanager.NodeType_SWITCH_GB200_NVIDIA, 51)
	resp.Nodes[4].HostIpAddresses, resp.Nodes[4].HostMacAddresses = []string{"10.0.1.51"}, []string{"02:00:00:00:01:33"}
	add("lab", "shelf-01", rackmanager.NodeType_POWERSHELF_GB200_LITEON, 81)
	add("row2", "tray-01", rackmanager.NodeType_COMPUTE_GB300_LENOVO, 101)
	resp.Nodes[6].Port = 8443
	return resp
}

// child is one job of the batch.
func child(n int, state rackbusv1.JobState, percent uint32, text string) *rackbusv1.Job {
	j := &rackbusv1.Job{
		JobId: childID(n), ParentJobId: batchID, Type: "firmware_update", Kind: rackbusv1.JobKind_JOB_KIND_LEAF,
		RackId: "lab", NodeId: fmt.Sprintf("tray-%02d", n), State: state, Percent: percent, StateDescription: text,
		CreatedAt: ago(10 * time.Minute), UpdatedAt: ago(time.Minute), Attempt: 1,
	}
	if state != rackbusv1.JobState_JOB_STATE_QUEUED {
		j.StartedAt, j.Agent = ago(9*time.Minute), "compute-agent-1"
	}
	if state >= rackbusv1.JobState_JOB_STATE_COMPLETED {
		j.FinishedAt = ago(2 * time.Minute)
	}
	return j
}

// batch is a parent, with its counts taken from the children.
func batch(state rackbusv1.JobState, text string, children ...*rackbusv1.Job) *rackbusv1.Job {
	j := &rackbusv1.Job{
		JobId: batchID, Name: "November BMCs", Type: "firmware_update", Kind: rackbusv1.JobKind_JOB_KIND_PARENT, RackId: "lab",
		State: state, StateDescription: text, CreatedAt: ago(10 * time.Minute), StartedAt: ago(9 * time.Minute), UpdatedAt: ago(time.Minute),
		ChildrenTotal: uint32(len(children)), Children: &rackbusv1.JobCounts{}, Attempt: 1, Deadline: timestamppb.New(noon.Add(2 * time.Hour)),
	}
	for _, c := range children {
		switch c.GetState() {
		case rackbusv1.JobState_JOB_STATE_QUEUED:
			j.Children.Queued++
		case rackbusv1.JobState_JOB_STATE_COMPLETED:
			j.Children.Completed++
		case rackbusv1.JobState_JOB_STATE_FAILED:
			j.Children.Failed++
		default:
			j.Children.Running++
		}
	}
	if state >= rackbusv1.JobState_JOB_STATE_COMPLETED {
		j.FinishedAt = ago(time.Minute)
	}
	return j
}

// failure is why the third tray has failed.
func failure() *rackbusv1.JobFailure {
	return &rackbusv1.JobFailure{
		Code: rackbusv1.JobErrorCode_JOB_ERROR_CODE_SERVER_ERROR, FailureCode: "BMC_TASK_FAILED", Phase: "task",
		Message: "the update task ended with an exception", Retry: rackbusv1.FailureRetry_FAILURE_RETRY_AFTER_FIX,
		Advice: "Compare the image's digest, then retry.", Runbook: "docs/failure-codes.md#bmc_task_failed",
		Device: &rackbusv1.DeviceAnswer{
			MessageId: "Update.1.0.VerificationFailed", Message: "Verification of image 'BMC' at '/dev/mtd5' failed.",
			Severity: "Critical", Resolution: "Check the image and retry.",
		},
	}
}

const (
	queued    = rackbusv1.JobState_JOB_STATE_QUEUED
	running   = rackbusv1.JobState_JOB_STATE_RUNNING
	completed = rackbusv1.JobState_JOB_STATE_COMPLETED
	jobFailed = rackbusv1.JobState_JOB_STATE_FAILED
	partially = rackbusv1.JobState_JOB_STATE_PARTIALLY_FAILED
)

// halfway is the batch while it runs, ended after it.
func halfway() *rackbusv1.GetJobResponse {
	children := []*rackbusv1.Job{
		child(1, completed, 100, "Firmware updated"), child(2, running, 45, "Polling firmware task"),
		child(3, jobFailed, 60, "Failed"), child(4, queued, 0, "Waiting for an agent"),
	}
	children[2].Failure = failure()
	return &rackbusv1.GetJobResponse{Job: batch(running, "2/4 firmware updates ended", children...), Children: children}
}

func ended() *rackbusv1.GetJobResponse {
	children := []*rackbusv1.Job{
		child(1, completed, 100, "Firmware updated"), child(2, completed, 100, "Firmware updated"),
		child(3, jobFailed, 60, "Failed"), child(4, completed, 100, "Already up to date"),
	}
	children[2].Failure = failure()
	j := batch(partially, "Partially failed", children...)
	j.Failure = &rackbusv1.JobFailure{Message: "1 of 4 firmware updates failed", FailureCode: "CHILDREN_FAILED"}
	for _, c := range append(children, j) {
		c.UpdatedAt = ago(30 * time.Second)
	}
	return &rackbusv1.GetJobResponse{
		Job: j, Children: children,
		RefusedNodes: []*rackbusv1.RefusedNode{{RackId: "lab", NodeId: "tray-09", Message: "node tray-09 is busy: job b3c45a10-9f7d-4d0e-a6c4-10fe00000000"}},
	}
}

// alone is a job without children, with its stages.
func alone() *rackbusv1.Job {
	j := child(3, jobFailed, 60, "Failed")
	j.JobId, j.ParentJobId, j.Failure = "9c0e7d52-1b7e-4f0a-8a43-5d2200000000", "", failure()
	stage := func(name string, status rackbusv1.StageStatus, from, to time.Duration, message string) *rackbusv1.JobStage {
		s := &rackbusv1.JobStage{Name: name, Status: status, Description: message}
		if from > 0 {
			s.StartedAt, s.FinishedAt = ago(from), ago(to)
		}
		return s
	}
	j.Stages = []*rackbusv1.JobStage{
		stage("check", rackbusv1.StageStatus_STAGE_STATUS_COMPLETED, 540*time.Second, 537*time.Second, "Node is ready"),
		stage("upload", rackbusv1.StageStatus_STAGE_STATUS_COMPLETED, 537*time.Second, 420*time.Second, "64 MiB sent"),
		stage("task", rackbusv1.StageStatus_STAGE_STATUS_FAILED, 420*time.Second, 120*time.Second, "Task 7 ended: Exception"),
		stage("activate", rackbusv1.StageStatus_STAGE_STATUS_SKIPPED, 0, 0, ""),
	}
	return j
}

// diagnosed is a job of node diagnostics.
func diagnosed() *rackbusv1.Job {
	j := child(3, completed, 100, "Evidence collected")
	j.JobId, j.ParentJobId, j.Type, j.AboutJobId = "e41f03aa-77d6-4c1e-9b0a-aa1c00000000", "", "node_diagnostics", batchID
	j.NodeDiagnostics = &rackbusv1.NodeDiagnostics{
		FailureSignature: "IMAGE_REJECTED", Summary: "The BMC refused the image", Advice: "Fetch the package again and compare its digest",
		Collectors: []*rackbusv1.CollectorOutcome{
			{Name: "power", Required: true, Status: rackbusv1.CollectorStatus_COLLECTOR_STATUS_COLLECTED, Duration: durationpb.New(2 * time.Second)},
			{Name: "sel", Status: rackbusv1.CollectorStatus_COLLECTOR_STATUS_FAILED, Duration: durationpb.New(31 * time.Second), Message: "HTTP 503"},
			{Name: "nvue", Status: rackbusv1.CollectorStatus_COLLECTOR_STATUS_SKIPPED},
		},
		Evidence: &rackbusv1.EvidenceBundle{Filename: "bundle.tar.gz", SizeBytes: 48213},
	}
	return j
}
