// SPDX-License-Identifier: Apache-2.0

package secrets

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rackbus/rackbus/test/cluster"
)

// Places returns everything of a cluster that outlives a call, by what it is: logs, metrics, streams, and the store of
// the brokers, which should be a plain one.
func Places(ctx context.Context, c *cluster.Cluster) (map[string][]byte, error) {
	places := map[string][]byte{}
	var err error
	for _, p := range c.All() {
		places["log of "+p.Name] = []byte(p.Log().String())
		if p.Role == cluster.RoleBroker {
			continue
		}
		if places["metrics of "+p.Name], err = get(ctx, c.MetricsURL(p)); err != nil {
			return nil, err
		}
	}
	if places["streams"], err = streams(ctx, c); err != nil {
		return nil, err
	}
	if places["store"], err = store(c.StoreDirs()); err != nil {
		return nil, err
	}
	return places, nil
}

func get(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s", url, res.Status)
	}
	return io.ReadAll(res.Body)
}

// streams reads every message of every stream, with subject and headers.
func streams(ctx context.Context, c *cluster.Cluster) ([]byte, error) {
	nc, err := c.Bus()
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Minute)) // the machine may be busy
	if err != nil {
		return nil, err
	}
	var content []byte
	names := js.StreamNames(ctx)
	for name := range names.Name() {
		if content, err = appendStream(ctx, content, nc, name); err != nil {
			return nil, err
		}
	}
	return content, names.Err()
}

func appendStream(ctx context.Context, content []byte, nc *nats.Conn, name string) ([]byte, error) {
	stored, err := cluster.ReadStream(ctx, nc, name, jetstream.DeliverAllPolicy)
	if err != nil {
		return nil, err
	}
	for _, m := range stored {
		content = fmt.Appendln(content, m.Subject, m.Header)
		content = append(content, m.Data...)
	}
	return content, nil
}

// store reads the files of brokers, which hold deleted messages as well.
func store(dirs []string) ([]byte, error) {
	var content []byte
	for _, dir := range dirs {
		if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			file, err := os.ReadFile(path)
			content = append(content, file...)
			return err
		}); err != nil {
			return nil, err
		}
	}
	return content, nil
}
