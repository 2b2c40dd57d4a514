// SPDX-License-Identifier: Apache-2.0

package nvswitch

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"slices"
	"time"
)

// nonceBytes is the length of an attestation nonce, in bytes.
const nonceBytes = 32

func addSPDM(at route) {
	const spdm = "/system/security/spdm"
	at("GET", spdm, func(s *Switch, _ *call) reply {
		out := object{}
		for _, component := range s.opts.SPDM {
			out[component] = object{}
		}
		return ok(out)
	})
	at("POST", spdm+"/{component}", post(map[string]func(*Switch, *call) reply{"@generate": generateEvidence}))
	at("GET", spdm+"/{component}/measurements", evidence(func(component, nonce string) object {
		return object{"signed-measurements": Measurements(component, nonce), "version": "1.1"}
	}))
	at("GET", spdm+"/{component}/certificates", evidence(func(component, _ string) object {
		return object{"chain": "-----BEGIN CERTIFICATE-----\n" + base64.StdEncoding.EncodeToString([]byte(component)) + "\n-----END CERTIFICATE-----\n"}
	}))
}

func generateEvidence(s *Switch, c *call) reply {
	component, nonce := c.r.PathValue("component"), c.parameter("nonce")
	if !slices.Contains(s.opts.SPDM, component) {
		return notFound(c.path)
	}
	if raw, err := hex.DecodeString(nonce); err != nil || len(raw) != nonceBytes {
		return refusal(http.StatusBadRequest, "The nonce is not 32 bytes in hex.")
	}
	return s.start(c, s.timing.Action, func(time.Time, *action) outcome {
		s.evidence[component] = nonce
		return succeeded()
	})
}

// evidence shows what was generated last, an empty object before.
func evidence(show func(component, nonce string) object) func(*Switch, *call) reply {
	return func(s *Switch, c *call) reply {
		component := c.r.PathValue("component")
		if !slices.Contains(s.opts.SPDM, component) {
			return notFound(c.path)
		}
		nonce := s.evidence[component]
		if nonce == "" || slices.Contains(s.knobs.EmptyEvidence, component) {
			return ok(object{})
		}
		return ok(show(component, nonce))
	}
}

// Measurements returns what a component's measurements are for a nonce in lower-case hex. A digest stands for the
// signature over the nonce: that they are fresh can be checked, nothing else.
func Measurements(component, nonce string) string {
	digest := sha256.Sum256([]byte(component + nonce))
	return base64.StdEncoding.EncodeToString(digest[:])
}
