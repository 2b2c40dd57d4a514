// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/seal"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// secretsKind separates the secrets of a request from other sealed payloads.
const secretsKind = "secrets"

// SealSecrets seals the secrets of one request for the job that it becomes. They
// open only for that job.
func SealSecrets(s *seal.Session, jobID string, secrets proto.Message) (*rackbusv1.Sealed, error) {
	plain, err := proto.Marshal(secrets)
	if err != nil {
		return nil, fmt.Errorf("seal secrets of job %s: %w", jobID, err)
	}
	defer clear(plain)
	box := s.Seal(seal.AAD(secretsKind, "", "", jobID), plain)
	return &rackbusv1.Sealed{KeyId: box.KeyID, Sender: box.Sender, Dek: box.DEK, Data: box.Data}, nil
}

// OpenSecrets reads the secrets of a command into a message of the kind that was
// sealed. It wraps ErrNone when there are none, and the errors of seal when they
// do not open.
func OpenSecrets(o *seal.Opener, cmd *rackbusv1.JobCommand, into proto.Message) error {
	sealed := cmd.GetSecrets()
	if sealed == nil {
		return fmt.Errorf("secrets of job %s: %w", cmd.GetJobId(), ErrNone)
	}
	plain, err := o.Open(seal.AAD(secretsKind, "", "", cmd.GetJobId()), seal.Box{
		KeyID: sealed.GetKeyId(), Sender: sealed.GetSender(), DEK: sealed.GetDek(), Data: sealed.GetData(),
	})
	if err != nil {
		return fmt.Errorf("open secrets of job %s: %w", cmd.GetJobId(), err)
	}
	defer plain.Wipe()
	if err := proto.Unmarshal(plain.Bytes(), into); err != nil {
		// The decoder's error could show content.
		return fmt.Errorf("open secrets of job %s: unreadable content", cmd.GetJobId())
	}
	return nil
}
