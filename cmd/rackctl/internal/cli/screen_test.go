// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"fmt"
	"html"
	"strconv"
	"strings"
	"unicode/utf8"
)

// screen is a terminal that understands what rackctl sends: text, line ends, moves
// up, erasing, and colours.
type screen struct {
	lines [][]glyph
	row   int
	col   int
	style string
	raw   strings.Builder
	// rest is the beginning of what the next write ends.
	rest []byte
}

type glyph struct {
	r     rune
	style string
}

func (s *screen) Write(p []byte) (int, error) {
	s.raw.Write(p)
	whole := append(s.rest, p...)
	cut := len(whole)
	if esc := bytes.LastIndexByte(whole, '\x1b'); esc >= 0 && !bytes.ContainsAny(whole[esc:], "AJKm") {
		cut = esc
	} else if last, size := utf8.DecodeLastRune(whole); last == utf8.RuneError && size == 1 {
		for cut--; cut > 0 && !utf8.RuneStart(whole[cut]); cut-- {
		}
	}
	s.rest = bytes.Clone(whole[cut:])
	text := []rune(string(whole[:cut]))
	for i := 0; i < len(text); i++ {
		switch r := text[i]; r {
		case '\n':
			s.row, s.col = s.row+1, 0
		case '\r':
			s.col = 0
		case '\x1b':
			end := i + 2
			for end < len(text) && (text[end] >= '0' && text[end] <= '9' || text[end] == ';') {
				end++
			}
			s.control(text[end], string(text[i+2:end]))
			i = end
		default:
			s.put(r)
		}
	}
	return len(p), nil
}

func (s *screen) put(r rune) {
	for len(s.lines) <= s.row {
		s.lines = append(s.lines, nil)
	}
	for len(s.lines[s.row]) <= s.col {
		s.lines[s.row] = append(s.lines[s.row], glyph{r: ' '})
	}
	s.lines[s.row][s.col] = glyph{r, s.style}
	s.col++
}

// control does what a control sequence (ECMA-48) says.
func (s *screen) control(final rune, argument string) {
	n, _ := strconv.Atoi(argument)
	switch final {
	case 'A':
		s.row = max(s.row-max(n, 1), 0)
	case 'K':
		if s.row < len(s.lines) {
			s.lines[s.row] = s.lines[s.row][:min(s.col, len(s.lines[s.row]))]
		}
	case 'J':
		s.lines = s.lines[:min(s.row, len(s.lines))]
	case 'm':
		s.style = argument
		if n == 0 {
			s.style = ""
		}
	default:
		panic(fmt.Sprintf("the screen does not know ESC [ %s %c", argument, final))
	}
}

// text is what can be read.
func (s *screen) text() string {
	var out strings.Builder
	for _, line := range s.lines {
		var row strings.Builder
		for _, g := range line {
			row.WriteRune(g.r)
		}
		out.WriteString(strings.TrimRight(row.String(), " ") + "\n")
	}
	return out.String()
}

// The colours of pictures, by the codes that rackctl sends.
var colours = map[string]string{"": "#d7dae0", "1": "#ffffff", "2": "#7d8590", "31": "#ff7b72", "32": "#56d364", "33": "#e3b341", "36": "#39c5cf"}

// The cell of a picture, in pixels, and the margin around all.
const (
	cellWidth  = 8.4
	cellHeight = 19
	margin     = 16
)

// svg draws the screen as a picture, with the command line above it.
func (s *screen) svg(prompt string) string {
	width := len(prompt) + 2
	for _, line := range s.lines {
		width = max(width, len(line))
	}
	height := (len(s.lines)+1)*cellHeight + 2*margin
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%d" role="img" aria-label="%s">`+"\n",
		float64(width)*cellWidth+2*margin, height, html.EscapeString(prompt))
	fmt.Fprintf(&out, `<rect width="100%%" height="100%%" rx="6" fill="#161b22"/>`+"\n")
	fmt.Fprintf(&out, `<g font-family="ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace" font-size="14" xml:space="preserve">`+"\n")
	span := func(row, col int, text, style string) {
		// The length is told, so that columns line up whatever font there is.
		weight := ""
		if style == "1" {
			weight = ` font-weight="bold"`
		}
		n := len([]rune(text))
		fmt.Fprintf(&out, `<text x="%.1f" y="%d" fill="%s" textLength="%.1f"%s>%s</text>`+"\n",
			margin+float64(col)*cellWidth, margin+row*cellHeight+14, colours[style], float64(n)*cellWidth, weight, html.EscapeString(text))
	}
	span(0, 0, "$ "+prompt, "2")
	for i, line := range s.lines {
		for from := 0; from < len(line); {
			to := from
			for to < len(line) && line[to].style == line[from].style {
				to++
			}
			var text strings.Builder
			for _, g := range line[from:to] {
				text.WriteRune(g.r)
			}
			// Pieces are placed one by one: white space in SVG is not reliable.
			at := from
			for _, piece := range strings.SplitAfter(text.String(), "  ") {
				trimmed := strings.TrimRight(piece, " ")
				lead := len([]rune(trimmed)) - len([]rune(strings.TrimLeft(trimmed, " ")))
				if trimmed = strings.TrimLeft(trimmed, " "); trimmed != "" {
					span(i+1, at+lead, trimmed, line[from].style)
				}
				at += len([]rune(piece))
			}
			from = to
		}
	}
	out.WriteString("</g>\n</svg>\n")
	return out.String()
}
