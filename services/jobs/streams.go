// SPDX-License-Identifier: Apache-2.0

package jobs

import "context"

// keepStreams creates streams and consumers again that have gone, as with the disk of
// a broker, and tells of those that are not as needed any more.
func (s *Service) keepStreams(ctx context.Context) {
	told := ""
	for rest(ctx, jitter(s.o.StreamCheck)) == nil {
		text := ""
		if err := s.o.Conn.Provision(ctx); err != nil {
			text = err.Error()
		}
		if text != told && text != "" && ctx.Err() == nil {
			s.log.Error("bus is not as needed", "err", text)
		}
		told = text
	}
}
