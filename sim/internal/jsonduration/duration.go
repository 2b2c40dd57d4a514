// SPDX-License-Identifier: Apache-2.0

// Package jsonduration is the JSON form of a time.Duration: "1.5s" or a number of seconds when read, text when
// written.
package jsonduration

import (
	"encoding/json"
	"fmt"
	"time"
)

// Duration is a time.Duration with that JSON form.
type Duration time.Duration

// UnmarshalJSON accepts Go's duration text or seconds as a number.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var seconds float64
	if err := json.Unmarshal(b, &seconds); err == nil {
		*d = Duration(seconds * float64(time.Second))
		return nil
	}
	var text string
	if err := json.Unmarshal(b, &text); err != nil {
		return fmt.Errorf("duration %s is neither text nor seconds", b)
	}
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("duration: %w", err)
	}
	*d = Duration(parsed)
	return nil
}

// MarshalJSON writes Go's duration text.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }
