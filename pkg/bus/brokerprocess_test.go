// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/bus/broker"
	"github.com/rackbus/rackbus/pkg/bus/broker/brokertest"
)

// storeOfProcess makes the test binary a broker on the store that it names.
const storeOfProcess = "RACKBUS_TEST_BROKER_STORE"

// serve runs a broker until standard input ends, after a line with its URL.
func serve(store string) error {
	b, err := broker.Start(broker.Options{Name: "test", StoreDir: store, Host: "127.0.0.1", Port: -1})
	if err != nil {
		return err
	}
	defer b.Close()
	if _, err := fmt.Println(b.URL()); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// brokerProcess runs a broker with a memory of its own until the test ends, and returns its URL.
func brokerProcess(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe) // it ends with its standard input
	cmd.Env = append(os.Environ(), storeOfProcess+"="+brokertest.StoreDir(t))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		require.NoError(t, stdin.Close())
		require.NoError(t, cmd.Wait())
	})
	url, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSuffix(url, "\n")
}
