// SPDX-License-Identifier: Apache-2.0

package redfishagent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/stmcginnis/gofish/schemas"

	"github.com/rackbus/rackbus/pkg/redfish"
)

// ImageServer gives images to devices that take no push and fetch them themselves
// (UpdateService.SimpleUpdate). An image can be had only while its update runs,
// below a path that nobody can guess; the device proves its signature.
type ImageServer struct {
	base *url.URL

	mu     sync.Mutex
	images map[string]*image
}

// NewImageServer returns a server whose images devices reach below base, which is
// an http or https URL.
func NewImageServer(base string) (*ImageServer, error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, fmt.Errorf("URL of the image server: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("URL of the image server: %q is none of http or https", base)
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), ""
	return &ImageServer{base: u, images: map[string]*image{}}, nil
}

// ServeHTTP gives an image.
func (s *ImageServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, s.base.Path+"/"), "/")
	s.mu.Lock()
	img := s.images[token]
	s.mu.Unlock()
	if img == nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", time.Time{}, img.section())
}

// publish offers an image until it is withdrawn, which also closes it.
func (s *ImageServer) publish(img *image) (uri string, withdraw func()) {
	token := rand.Text()
	s.mu.Lock()
	s.images[token] = img
	s.mu.Unlock()
	return s.base.JoinPath(token, img.name).String(), func() {
		s.mu.Lock()
		delete(s.images, token)
		s.mu.Unlock()
		img.Close()
	}
}

// protocol is how devices are told to fetch.
func (s *ImageServer) protocol() schemas.TransferProtocolType {
	return schemas.TransferProtocolType(strings.ToUpper(s.base.Scheme))
}

// start listens until stop is called. A listener that fails later is told to the
// log: devices that need it then fail to fetch, and say so.
func (s *ImageServer) start(ctx context.Context, address string, log *slog.Logger) (stop func(), err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("image server: %w", err)
	}
	server := &http.Server{Handler: s, ReadHeaderTimeout: imageHeaderLimit}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("image server ended", "err", err)
		}
	})
	return func() {
		_ = server.Close()
		wg.Wait()
	}, nil
}

// imageHeaderLimit bounds how long a device may take to say what it wants.
const imageHeaderLimit = 30 * time.Second

// fetched adds where the device can fetch the image, when it takes it in no other
// way. The image stays on offer until the update has ended: devices begin when
// they have answered.
func (p *pkgStages) fetched(ctx context.Context, s *redfish.UpdateService, r redfish.UploadRequest) (redfish.UploadRequest, error) {
	server := p.u.d.opts.Images
	if server == nil || s.MultipartURI != "" || s.PushURI != "" || s.SimpleUpdateURI == "" {
		return r, nil
	}
	img, err := p.u.open(ctx, p.item.Index)
	if err != nil {
		return r, err
	}
	p.u.withdraw()
	r.ImageURI, p.u.withdrawn = server.publish(img)
	r.TransferProtocol = server.protocol()
	return r, nil
}

// withdraw takes back what is on offer.
func (u *update) withdraw() {
	if u.withdrawn != nil {
		u.withdrawn()
		u.withdrawn = nil
	}
}
