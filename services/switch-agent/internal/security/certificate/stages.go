// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"context"
	"errors"
	"time"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/switchtls"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security"
)

// The stages; those that bind are named after their service.
const (
	stageDirectory  = "prepare_remote_dir"
	stageCopyCA     = "sftp_copy_ca_pem"
	stageCopyCert   = "sftp_copy_client_pem"
	stageCopyKey    = "sftp_copy_client_key"
	stageImport     = "import_material"
	stageBind       = "bind_"
	stageVerify     = "verify_services"
	stageHelloNVUE  = "test_nvue_hello"
	stageHelloNMX   = "test_nmx_hello"
	stageHelloGNMI  = "test_gnmi_capabilities"
	fileMode        = 0o644
	keyMode         = 0o400
	removalAttempts = 3
	// changeLimit is how long the import of the material, or one binding, takes at
	// most: NVUE has a minute for a revision, and for each of its actions.
	changeLimit = 5 * time.Minute
)

// stages are the steps of the job.
func (w *work) stages() []agent.Stage {
	stages := []agent.Stage{
		{
			Name: stageDirectory, Description: "Creating the TLS directory on the switch",
			Resume: agent.Repeatable, Run: w.makeDirectory,
		},
		w.copyStage(stageCopyCA, switchtls.FileCA, w.material.CA, fileMode),
		w.copyStage(stageCopyCert, switchtls.FileCertificate, w.material.Certificate, fileMode),
		w.copyStage(stageCopyKey, switchtls.FileKey, w.material.Key.Bytes(), keyMode),
		{
			Name: stageImport, Description: "Importing the TLS material on the switch",
			Resume: agent.Resumable, Run: w.importMaterial, Attempts: removalAttempts, Pause: w.timing.VerifyPause,
			Limit: changeLimit,
		},
	}
	for _, s := range w.services {
		stages = append(stages, agent.Stage{
			Name: stageBind + string(s), Description: "Binding the certificate to " + string(s),
			Resume: agent.Resumable, Run: w.bind(s), Limit: changeLimit,
		})
	}
	stages = append(stages, agent.Stage{
		Name: stageVerify, Description: "Verifying the certificate bindings of the switch",
		Resume: agent.Repeatable, Run: w.verify, Attempts: w.timing.VerifyTries, Pause: w.timing.VerifyPause,
	})
	stages = append(stages, w.helloStages()...)
	for i := range stages {
		w.told(&stages[i])
	}
	return stages
}

// told notes in the details why a stage failed.
func (w *work) told(s *agent.Stage) {
	run, name := s.Run, s.Name
	s.Run = func(ctx context.Context) error {
		err := run(ctx)
		if skip, ok := errors.AsType[*skippedError](err); ok {
			return agent.Skip(skip.reason)
		}
		err = security.Failure(name, "", err)
		if fail, ok := errors.AsType[*agent.FailureError](err); ok {
			w.state.Details.Set(name, map[string]any{"error": fail.Failure.Message})
		}
		return err
	}
}

// skippedError ends a stage that has nothing to do on this switch.
type skippedError struct{ reason string }

func (e *skippedError) Error() string { return e.reason }
