// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// Users of the shipped configuration.
const (
	userAPI        = "api"
	userJobs       = "jobs"
	userCompute    = "agent-compute"
	userPowerShelf = "agent-powershelf"
	userSwitch     = "agent-switch"
	userSubscriber = "subscriber"
	userOperator   = "operator"
)

// shippedUsers are the accounts that deploy/ ships for one server, with
// passwords in place of NKEYs: the name of the user is its password.
func shippedUsers(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../deploy/nats/accounts-single.conf")
	require.NoError(t, err)
	return regexp.MustCompile(`nkey: \$NKEY_\w+`).ReplaceAllStringFunc(string(text), func(nkey string) string {
		name := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(nkey, "nkey: $NKEY_"), "_", "-"))
		return fmt.Sprintf("user: %q, password: %q", name, name)
	})
}

// site is a broker with the shipped users.
type site struct {
	t    *testing.T
	host string
	mu   sync.Mutex
	log  bytes.Buffer
}

func startSite(t *testing.T) *site {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "nats.conf")
	config := fmt.Sprintf("listen: \"127.0.0.1:-1\"\nmax_payload: 8MB\njetstream { store_dir: %q }\n%s", dir, shippedUsers(t))
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	o, err := server.ProcessConfigFile(file)
	require.NoError(t, err)
	o.NoSigs, o.NoLog, o.JetStreamMaxStore = true, true, 1<<50
	srv, err := server.NewServer(o)
	require.NoError(t, err)
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	require.True(t, srv.ReadyForConnections(patience))
	return &site{t: t, host: srv.Addr().String()}
}

func (s *site) url(user string) string { return "nats://" + user + ":" + user + "@" + s.host }

// Write takes the log of the connections, which has every refusal of the broker.
func (s *site) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(line)
}

func (s *site) requireNoRefusal() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.NotContains(s.t, s.log.String(), "ermissions")
}

func (s *site) connect(user string) *Conn {
	s.t.Helper()
	return open(s.t, s.url(user), func(o *Options) {
		o.Role, o.Logger = user, slog.New(slog.NewTextHandler(s, nil))
	})
}

// refused connects as the user and returns what the broker says to do.
func (s *site) refused(user string, do func(*nats.Conn)) string {
	s.t.Helper()
	said := make(chan error, 1)
	nc, err := nats.Connect(s.url(user), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		select {
		case said <- err:
		default:
		}
	}))
	require.NoError(s.t, err)
	defer nc.Close()
	do(nc)
	require.NoError(s.t, nc.Flush())
	select {
	case err := <-said:
		return err.Error()
	case <-time.After(patience):
		return ""
	}
}

// TestEveryRoleWorksWithTheShippedRights does with every user what its role
// does, and nothing of it may be refused.
