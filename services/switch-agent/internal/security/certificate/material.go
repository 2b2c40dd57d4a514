// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"path"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/ssh"
	"github.com/rackbus/rackbus/pkg/switchtls"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security"
)

// shell runs a part of a stage in a login of its own.
func (w *work) shell(run func(*ssh.Client) error) error {
	client, err := w.sw.SSH()
	if err != nil {
		return err
	}
	defer client.Close()
	return run(client)
}

// makeDirectory makes the directory of this installation, which others may enter but
// not list.
func (w *work) makeDirectory(ctx context.Context) error {
	w.state.Details.Set(stageDirectory, map[string]any{"remote_dir": w.directory()})
	w.state.Directory = true
	if err := w.save(ctx); err != nil {
		return err
	}
	return w.shell(func(client *ssh.Client) error {
		for _, dir := range []string{remoteRoot, w.directory()} {
			if _, err := client.Exec(ctx, ssh.Command{Line: "install -d -m 751 " + ssh.Quote(dir)}); err != nil {
				return err
			}
		}
		return nil
	})
}

// copyStage copies one file. A cancellation cuts it.
func (w *work) copyStage(stage, name string, content []byte, mode fs.FileMode) agent.Stage {
	remote := path.Join(w.directory(), name)
	return agent.Stage{
		Name: stage, Description: "Copying " + name + " to the switch", Resume: agent.Repeatable, Interruptible: true,
		Run: func(ctx context.Context) error {
			w.state.Details.Set(stage, map[string]any{"remote_file": name, "remote_path": remote, "bytes": len(content)})
			if name == switchtls.FileKey {
				// From here on whoever ends the job has to look after the key.
				w.state.KeyStaged = true
				if err := w.save(ctx); err != nil {
					return err
				}
			}
			err := w.shell(func(client *ssh.Client) error {
				_, err := client.Upload(ctx, ssh.Upload{Source: bytes.NewReader(content), Path: remote, Mode: mode, Limit: w.timing.Upload})
				if err != nil {
					return err
				}
				// Not every SFTP server sets modes. It fails where the file is not there.
				_, err = client.Exec(ctx, ssh.Command{Line: fmt.Sprintf("chmod %o %s", mode, ssh.Quote(remote))})
				return err
			})
			if err == nil {
				return w.t.Failpoint(agent.FailAfterDeviceChange)
			}
			return device.Failure(stage, "", job.FailureUploadFailed, err)
		},
	}
}

// importMaterial lets the switch take over the files, and removes the private key
// from its disk. What was imported already stays.
func (w *work) importMaterial(ctx context.Context) error {
	caID, id := w.cmd.GetCaCertificateId(), w.cmd.GetEntityCertificateId()
	w.state.Details.Set(stageImport, map[string]any{"ca_certificate_id": caID, "entity_certificate_id": id})
	file := func(name string) string { return "file://" + path.Join(w.directory(), name) }
	err := w.importOnce(ctx, nvue.ImportCA(caID, file(switchtls.FileCA)), func(ctx context.Context) error {
		_, err := w.sw.NVUE.CACertificate(ctx, caID)
		return err
	})
	if err != nil {
		return security.Failure(stageImport, "CA certificate", err)
	}
	action := nvue.ImportCertificate(id, file(switchtls.FileCertificate), file(switchtls.FileKey))
	err = w.importOnce(ctx, action, func(ctx context.Context) error {
		_, err := w.sw.NVUE.Certificate(ctx, id)
		return err
	})
	if err != nil {
		return security.Failure(stageImport, "certificate", err)
	}
	if err := w.removeKey(ctx); err != nil {
		return agent.Retry(0, security.Failure(stageImport, "the material is imported, but the staged private key could not be removed", err))
	}
	return nil
}

// importOnce runs an import unless the switch has its result. An import whose end was
// not seen is judged by that too.
func (w *work) importOnce(ctx context.Context, action nvue.Action, look func(context.Context) error) error {
	err := look(ctx)
	if err == nil || device.Passes(err) || ctx.Err() != nil {
		return err
	}
	if _, err = w.sw.NVUE.RunAction(ctx, action); err != nil {
		if device.Passes(err) || ctx.Err() != nil || look(ctx) != nil {
			return err
		}
	}
	return w.t.Failpoint(agent.FailAfterDeviceChange)
}
