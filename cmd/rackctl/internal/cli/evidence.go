// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// evidenceFlags tell where a bundle goes.
type evidenceFlags struct {
	path  string
	force bool
	link  bool
}

func (f *evidenceFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&f.path, "out-file", "O", "", "`FILE` or folder for the bundle, - for standard output (default: its own name, here)")
	flags.BoolVar(&f.force, "overwrite", false, "replace an existing file")
}

func newJobEvidence(p *program) *cobra.Command {
	var f evidenceFlags
	cmd := jobArg(p, "evidence", "Download what node diagnostics have collected", `Download the bundle of a diagnostics job, or of the one that has looked into a failed
job, and compare it with the digest that the server tells. --link prints the link
in place of that; it is valid for a short time, for whoever has it.`)
	f.add(cmd)
	cmd.Flags().BoolVar(&f.link, "link", false, "print the link, download nothing")
	return p.asks(cmd, func(ctx context.Context, r *request) error {
		resp, err := r.s.evidence(ctx, r.args[0])
		if err != nil {
			return err
		}
		switch {
		case r.out.data():
			return r.out.write(p.env.Stdout, resp)
		case f.link:
			fmt.Fprintln(p.env.Stdout, cell(resp.GetUrl()))
			return nil
		default:
			return f.download(ctx, p, r.s, resp)
		}
	})
}

// evidence asks for the link to a bundle.
func (s *server) evidence(ctx context.Context, id string) (*rackbusv1.GetEvidenceResponse, error) {
	resp, err := s.jobs.GetEvidence(ctx, &rackbusv1.GetEvidenceRequest{JobId: id})
	if err != nil {
		return nil, err
	}
	if resp.GetStatus() != rackbusv1.EvidenceStatus_EVIDENCE_STATUS_AVAILABLE {
		return nil, notFoundf("there is no evidence of job %s: %s", id, cell(resp.GetReason()))
	}
	return resp, nil
}

// download fetches a bundle into a file, or to standard output.
func (f *evidenceFlags) download(ctx context.Context, p *program, s *server, e *rackbusv1.GetEvidenceResponse) error {
	ctx, cancel := context.WithTimeout(ctx, p.env.Timing.withDefaults().Evidence)
	defer cancel()
	body, err := s.fetch(ctx, e.GetUrl())
	if err != nil {
		return err
	}
	defer body.Close()
	if f.path == "-" {
		return copyVerified(p.env.Stdout, body, e)
	}
	path := f.path
	if path == "" {
		path = "."
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, fileName(e.GetFilename()))
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".rackctl-*")
	if err != nil {
		return failed(err)
	}
	defer os.Remove(tmp.Name())
	if err := copyVerified(tmp, body, e); err != nil {
		return errors.Join(err, tmp.Close())
	}
	if err := tmp.Close(); err != nil {
		return failed(err)
	}
	if !f.force {
		err = reserve(path)
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if errors.Is(err, fs.ErrExist) {
		return failedf("%s exists already: give another name with -O, or --overwrite", path)
	}
	if err != nil {
		return failed(err)
	}
	fmt.Fprintln(p.env.Stdout, path)
	return nil
}

// reserve makes an empty file where there is none yet, so that nobody else's is replaced.
// A hard link would do it in one step, but not every file system has them.
func reserve(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// fileName makes a name that the server gives one of a file in the folder that the
// caller means: no other folder, no hidden file, nothing a terminal would obey.
func fileName(told string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '-'
	}, filepath.Base(told))
	if name = strings.TrimLeft(name, ".-"); name == "" {
		return "evidence.tar.gz"
	}
	return name
}

// fetch opens the link. It needs no certificate of ours; the server's has to come
// from the same CA.
func (s *server) fetch(ctx context.Context, link string) (io.ReadCloser, error) {
	u, err := url.Parse(link)
	if err != nil {
		return nil, failedf("the server gave a link that is none")
	}
	transport := &http.Transport{DisableKeepAlives: true}
	if u.Scheme == "https" && !s.target.Insecure {
		t := s.target
		t.Address = net.JoinHostPort(u.Hostname(), "443") // the name that its certificate has to be for
		config, err := t.tls()
		if err != nil {
			return nil, err
		}
		config.NextProtos = nil
		transport.TLSClientConfig = config
	}
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, link, http.NoBody)
	if err != nil {
		return nil, failedf("the server gave a link that is none")
	}
	resp, err := client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // the link itself is a secret for a while
		}
		return nil, &exitError{ExitUnreachable, fmt.Errorf("evidence at %s: %w", req.URL.Host, err)}
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.Join(failedf("evidence at %s: %s", req.URL.Host, resp.Status), resp.Body.Close())
	}
	return resp.Body, nil
}

// copyVerified copies the bundle and compares it with what was promised.
func copyVerified(w io.Writer, r io.Reader, e *rackbusv1.GetEvidenceResponse) error {
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(w, sum), io.LimitReader(r, e.GetSizeBytes()+1))
	switch {
	case err != nil:
		return failedf("the bundle broke off after %s: %w", bytesWord(n), err)
	case n != e.GetSizeBytes():
		return failedf("the bundle has %d bytes in place of %d", n, e.GetSizeBytes())
	case subtle.ConstantTimeCompare(sum.Sum(nil), e.GetSha256()) != 1:
		return failedf("the bundle is not what the server's digest promises")
	}
	return nil
}
