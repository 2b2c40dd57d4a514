// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/rackbus/rackbus/sim/reqlog"
)

// fetchLimit bounds the download of a SimpleUpdate.
const fetchLimit = time.Minute

// receiveSimple is UpdateService.SimpleUpdate: the device fetches the image itself, before it answers.
func (d *Device) receiveSimple(r *http.Request) answer {
	if !d.has(PushSimple) {
		return notFound(r.URL.Path)
	}
	raw, err := io.ReadAll(io.LimitReader(r.Body, maxJSONBody))
	if err != nil {
		return answer{abort: true}
	}
	var parameters struct {
		ImageURI, TransferProtocol, Username, Password string
		Targets                                        []string
		ForceUpdate                                    bool
	}
	if json.Unmarshal(raw, &parameters) != nil {
		return refusal(http.StatusBadRequest, "MalformedJSON", "The parameters are not valid.")
	}
	if parameters.ImageURI == "" {
		return refusal(http.StatusBadRequest, "ActionParameterMissing", "SimpleUpdate needs the parameter ImageURI.", "SimpleUpdate", "ImageURI")
	}
	uri := parameters.ImageURI
	if !strings.Contains(uri, "://") {
		uri = strings.ToLower(parameters.TransferProtocol) + "://" + uri
	}
	note := &reqlog.Upload{Targets: parameters.Targets, Parameters: raw}
	reqlog.FromContext(r.Context()).Upload = note
	in := intake{note: note, name: path.Base(uri)}
	note.File = in.name
	if err := in.fetch(r, uri, parameters.Username, parameters.Password); err != nil {
		return refusal(http.StatusBadRequest, updateRegistry+"TransferFailed", "The image could not be fetched.", uri)
	}
	u := in.upload()
	u.targets, u.force = parameters.Targets, parameters.ForceUpdate
	return d.begin(note, r.Host, u, d.decide)
}

// fetch reads an image from a server.
func (in *intake) fetch(r *http.Request, uri, user, password string) error {
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // a BMC knows no authority
		DisableKeepAlives: true,
	}
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, uri, nil)
	if err != nil {
		return err
	}
	if user != "" {
		req.SetBasicAuth(user, password)
	}
	res, err := (&http.Client{Transport: transport, Timeout: fetchLimit}).Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return http.ErrNotSupported
	}
	return in.read(r.Context(), res.Body)
}
