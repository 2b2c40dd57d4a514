// SPDX-License-Identifier: Apache-2.0

// Package image replaces the operating system image of a switch. A switch has two
// partitions; the new image goes into the one that does not run. The stages, whose
// names callers know:
//
//	inspect_state                 reads what runs, and what runs next; opens the
//	                              file. Repeatable
//	cleanup_old_partition         removes the image that does not run. Resumable: it
//	                              notes its intent, and looks before it repeats
//	stage_image                   sends the file. Repeatable
//	trigger_install               begins the installation. Once
//	wait_for_install_handoff      follows it until the switch goes down. Resumable
//	wait_for_target_steady_state  waits until the new image runs and stays. Resumable
//
// A switch that runs the image already, and will after a reboot, is left alone.
//
// An installation whose answer, action or agent was lost is judged by the image
// state: by what is in the partitions, what runs, and what runs next.
//
// Once the new image runs, its SSH host key is accepted in place of the recorded
// one, by this job and only once.
package image
