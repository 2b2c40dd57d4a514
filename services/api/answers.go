// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"

	"github.com/rackbus/rackbus/proto/rackmanager"
)

func statusOf(ok bool) rackmanager.ReturnCode {
	if ok {
		return rackmanager.ReturnCode_RETURN_CODE_SUCCESS
	}
	return rackmanager.ReturnCode_RETURN_CODE_FAILURE
}

func success(format string, args ...any) *rackmanager.OperationResponse {
	return &rackmanager.OperationResponse{Status: statusOf(true), Message: fmt.Sprintf(format, args...)}
}

func failure(format string, args ...any) *rackmanager.OperationResponse {
	return &rackmanager.OperationResponse{Status: statusOf(false), Message: fmt.Sprintf(format, args...)}
}

func stats(total, failed int) *rackmanager.NodeOperationStats {
	return &rackmanager.NodeOperationStats{
		TotalNodes: uint32(total), SuccessfulNodes: uint32(total - failed), FailedNodes: uint32(failed),
	}
}

// batchFailure is the answer to a batch that was refused as a whole before any
// node was looked at.
func batchFailure(format string, args ...any) *rackmanager.NodeBatchResponse {
	return &rackmanager.NodeBatchResponse{
		Status: statusOf(false), Message: fmt.Sprintf(format, args...), Stats: &rackmanager.NodeOperationStats{},
	}
}

// nodeResult is the line of one node. The text is empty on success: clients take
// any text for a failure.
func nodeResult(nodeID string, err error) *rackmanager.NodeOperationResult {
	r := &rackmanager.NodeOperationResult{NodeId: nodeID, Status: statusOf(err == nil)}
	if err != nil {
		r.ErrorMessage = err.Error()
	}
	return r
}

// batchResponse is the answer to a batch that went through node by node. The
// message is done on success, and mixed with both counts and the total else.
func batchResponse(results []*rackmanager.NodeOperationResult, done, mixed string) *rackmanager.NodeBatchResponse {
	failed := 0
	for _, r := range results {
		if r.GetStatus() != rackmanager.ReturnCode_RETURN_CODE_SUCCESS {
			failed++
		}
	}
	ok, total := len(results)-failed, len(results)
	message := fmt.Sprintf(done, ok, total)
	if failed > 0 {
		message = fmt.Sprintf(mixed, ok, failed, total)
	}
	return &rackmanager.NodeBatchResponse{
		Status: statusOf(failed == 0), Message: message, NodeResults: results, Stats: stats(total, failed),
	}
}
