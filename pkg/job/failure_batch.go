// SPDX-License-Identifier: Apache-2.0

package job

// What a parent tells of its children.
const (
	FailureChildrenFailed   FailureCode = "CHILDREN_FAILED"
	FailureChildrenStopped  FailureCode = "CHILDREN_STOPPED"
	FailureChildrenTimedOut FailureCode = "CHILDREN_TIMED_OUT"
	FailureParentUnusable   FailureCode = "PARENT_UNUSABLE"
	FailureRolloutStopped   FailureCode = "ROLLOUT_STOPPED"
)

var batchFailures = [...]FailureCodeInfo{
	{
		FailureCode: FailureChildrenFailed,
		Code:        CodeOther,
		Meaning:     "children of the batch failed",
		Retry:       RetryAfterFix,
		Advice:      "Each failed child has its own failure code: act on those.",
	},
	{
		FailureCode: FailureChildrenStopped,
		Code:        CodeOther,
		Meaning:     "every child of the batch was stopped",
		Retry:       RetryAsIs,
		Advice:      "Look at the children for who stopped them, and for terminated ones.",
	},
	{
		FailureCode: FailureChildrenTimedOut,
		Code:        CodeTimeout,
		Meaning:     "every child of the batch passed its deadline",
		Retry:       RetryAfterInspection,
		Advice:      "Look at the children for whether they had started.",
	},
	{
		FailureCode: FailureParentUnusable,
		Code:        CodeInternal,
		Meaning:     "the parent takes no further children",
		Retry:       RetryAsIs,
		Advice:      "The batch has ended meanwhile: send the request for the nodes that are left.",
	},
	{
		FailureCode: FailureRolloutStopped,
		Code:        CodeOther,
		Meaning:     "the rollout of the batch stopped before it came to the node",
		Retry:       RetryAfterFix,
		Advice: "See why it stopped (the batch tells), then start a rollout of the nodes that are left. " +
			"The node was not touched.",
	},
}
