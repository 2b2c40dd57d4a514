// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// Reasons why a direct run does not begin.
var (
	// ErrStateInUse says that another process runs the job of a state file.
	ErrStateInUse = errors.New("agent: the state file is in use by another run")
	// ErrStateOfOther says that a state file is that of another command.
	ErrStateOfOther = errors.New("agent: the state file belongs to another command")
)

// memory keeps the one checkpoint of a direct run, and its copy in the state file.
type memory struct {
	state *stateFile
	cmd   *rackbusv1.JobCommand

	mu  sync.Mutex
	ck  *rackbusv1.JobCheckpoint
	rev bus.Revision
}

// Checkpoint reads the checkpoint.
func (m *memory) Checkpoint(context.Context, node.Family, job.ID) (*rackbusv1.JobCheckpoint, bus.Revision, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ck == nil {
		return nil, 0, bus.ErrNotFound
	}
	return proto.CloneOf(m.ck), m.rev, nil
}

// PutCheckpoint writes the checkpoint. What is not in the file counts as not
// written: the workflow does not go on to the device then.
func (m *memory) PutCheckpoint(_ context.Context, ck *rackbusv1.JobCheckpoint, expect bus.Revision) (bus.Revision, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.rev != expect {
		return 0, fmt.Errorf("checkpoint: %w", bus.ErrConflict)
	}
	if err := m.state.save(m.cmd, ck); err != nil {
		return 0, err
	}
	m.ck = proto.CloneOf(ck)
	m.rev++
	return m.rev, nil
}

// ask notes a request to stop. It is not for a later run.
func (m *memory) ask(c *job.Cancel) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ck.Cancel = job.CancelToProto(c)
	m.rev++
}

// stateFile is the checkpoint of a direct run on disk. A nil one keeps nothing.
type stateFile struct {
	path string
	lock *os.File
}

// savedState is the content of a state file.
type savedState struct {
	Version    int             `json:"version"`
	Command    json.RawMessage `json:"command"`
	Checkpoint json.RawMessage `json:"checkpoint"`
}

// openState locks a state file, which need not exist, until it is closed or the
// process ends.
func openState(path string) (*stateFile, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // a nil file keeps nothing
	}
	for {
		lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, fmt.Errorf("lock state file: %w", err)
		}
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("%w: %s", ErrStateInUse, path), lock.Close())
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("lock state file: %w", err), lock.Close())
		}
		// Another run may have removed the file between the two calls.
		mine, err := lock.Stat()
		there, serr := os.Stat(lock.Name())
		if err == nil && serr == nil && os.SameFile(mine, there) {
			return &stateFile{path: path, lock: lock}, nil
		}
		if err := errors.Join(err, lock.Close()); err != nil {
			return nil, fmt.Errorf("lock state file: %w", err)
		}
	}
}

func (f *stateFile) close() {
	if f == nil {
		return
	}
	os.Remove(f.lock.Name())
	f.lock.Close()
}

// load reads what an interrupted run of the same command has left; nil when there
// is nothing.
func (f *stateFile) load(want *rackbusv1.JobCommand) (*rackbusv1.JobCommand, *rackbusv1.JobCheckpoint, error) {
	if f == nil {
		return nil, nil, nil
	}
	raw, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read state file: %w", err)
	}
	var saved savedState
	cmd, ck := &rackbusv1.JobCommand{}, &rackbusv1.JobCheckpoint{}
	err = json.Unmarshal(raw, &saved)
	if err == nil && saved.Version != 1 {
		err = fmt.Errorf("version %d is not known", saved.Version)
	}
	if err == nil {
		err = errors.Join(protojson.Unmarshal(saved.Command, cmd), protojson.Unmarshal(saved.Checkpoint, ck))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read state file %s: %w", f.path, err)
	}
	given := proto.CloneOf(want)
	given.V, given.JobId, given.CreatedAt = cmd.GetV(), cmd.GetJobId(), cmd.GetCreatedAt()
	if !proto.Equal(given, cmd) {
		return nil, nil, fmt.Errorf("%w: %s", ErrStateOfOther, f.path)
	}
	return cmd, ck, nil
}

// save replaces the file, so that a crash leaves the old or the new one.
func (f *stateFile) save(cmd *rackbusv1.JobCommand, ck *rackbusv1.JobCheckpoint) error {
	if f == nil {
		return nil
	}
	if err := f.write(cmd, ck); err != nil {
		return fmt.Errorf("write state file: %w", err)
	}
	return nil
}

func (f *stateFile) write(cmd *rackbusv1.JobCommand, ck *rackbusv1.JobCheckpoint) (err error) {
	saved := savedState{Version: 1}
	if saved.Command, err = protojson.Marshal(cmd); err != nil {
		return err
	}
	if saved.Checkpoint, err = protojson.Marshal(ck); err != nil {
		return err
	}
	raw, err := json.MarshalIndent(saved, "", "  ")
	if err != nil {
		return err
	}
	dir := filepath.Dir(f.path)
	tmp, err := os.CreateTemp(dir, filepath.Base(f.path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(raw)
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), f.path); err != nil {
		return err
	}
	return syncDir(dir)
}

// syncDir makes a rename last.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// remove clears the file away when the job has ended.
func (f *stateFile) remove() error {
	if f == nil {
		return nil
	}
	if err := os.Remove(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove state file: %w", err)
	}
	return nil
}
