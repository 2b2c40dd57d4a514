// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// style is a colour of a text.
type style uint8

// The styles; each has a sequence in sgr.
const (
	plain style = iota
	bold
	dim
	good
	bad
	busy
	odd
)

// sgr are the codes of the styles (ECMA-48, select graphic rendition).
var sgr = [...]string{plain: "", bold: "1", dim: "2", good: "32", bad: "31", busy: "36", odd: "33"}

// paint colours a text when colours are wanted.
func paint(colours bool, s style, text string) string {
	if !colours || s == plain || text == "" {
		return text
	}
	return "\x1b[" + sgr[s] + "m" + text + "\x1b[0m"
}

// field is one cell of a table.
type field struct {
	text  string
	style style
}

// column heads one column. A wide one is shown with -o wide only.
type column struct {
	title string
	wide  bool
	right bool
	// flexible says that the column may be cut where the screen is too narrow for all.
	flexible bool
}

// table is rows of text for people. Where stdout is a terminal, the last column is
// cut at its edge.
type table struct {
	columns []column
	rows    [][]field
	// empty is said on standard error in place of a table without rows.
	empty string
	// notes follow the table.
	notes []string
}

// columns makes columns from titles: "+" before one makes it wide, ">" right, "~" flexible.
func columns(titles ...string) []column {
	out := make([]column, len(titles))
	for i, t := range titles {
		c := column{}
		if rest, ok := strings.CutPrefix(t, "+"); ok {
			c.wide, t = true, rest
		}
		if rest, ok := strings.CutPrefix(t, ">"); ok {
			c.right, t = true, rest
		}
		if rest, ok := strings.CutPrefix(t, "~"); ok {
			c.flexible, t = true, rest
		}
		c.title = t
		out[i] = c
	}
	return out
}

// add appends a row of strings and fields.
func (t *table) add(cells ...any) {
	row := make([]field, len(cells))
	for i, c := range cells {
		switch c := c.(type) {
		case field:
			row[i] = field{cell(c.text), c.style}
		case string:
			row[i] = field{text: cell(c)}
		default:
			row[i] = field{text: cell(fmt.Sprint(c))}
		}
	}
	t.rows = append(t.rows, row)
}

// write writes the table to standard output.
func (t *table) write(env *Env, wide bool) {
	if len(t.rows) == 0 && t.empty != "" {
		fmt.Fprintln(env.Stderr, t.empty)
		return
	}
	limit := 0
	if env.Tables && !wide {
		limit, _ = env.size()
	}
	t.render(env.Stdout, wide, env.Tables && env.Colours, limit)
	for _, n := range t.notes {
		fmt.Fprintln(env.Stdout, n)
	}
}

// gap is between columns.
const gap = "  "

// render writes the table; limit is the width of the screen, 0 for none.
func (t *table) render(w io.Writer, wide, colours bool, limit int) {
	var shown []int
	for i, c := range t.columns {
		if wide || !c.wide {
			shown = append(shown, i)
		}
	}
	head := make([]field, len(t.columns))
	for i, c := range t.columns {
		head[i] = field{c.title, bold}
	}
	rows := slices.Insert(slices.Clone(t.rows), 0, head)
	widths := make([]int, len(t.columns))
	for _, row := range rows {
		for _, i := range shown {
			widths[i] = max(widths[i], columnsOf(row[i].text))
		}
	}
	if limit > 0 {
		t.squeeze(shown, widths, limit)
	}
	for _, row := range rows {
		var line strings.Builder
		at := 0
		for n, i := range shown {
			f, last := row[i], n == len(shown)-1
			if n > 0 {
				line.WriteString(gap)
				at += len(gap)
			}
			switch {
			case limit == 0:
			case last:
				f.text = clip(f.text, limit-at)
			case t.columns[i].flexible:
				f.text = clip(f.text, widths[i])
			}
			pad := strings.Repeat(" ", max(widths[i]-columnsOf(f.text), 0))
			at += widths[i]
			switch {
			case t.columns[i].right:
				line.WriteString(pad + paint(colours, f.style, f.text))
			case last:
				line.WriteString(paint(colours, f.style, f.text))
			default:
				line.WriteString(paint(colours, f.style, f.text) + pad)
			}
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
}

// The least that is left of a flexible column, and of the last one for the sake of which others are cut.
const (
	minFlexible = 8
	minLast     = 16
)

// squeeze narrows the flexible columns, the widest first, until all fit on the screen or no more can be taken.
func (t *table) squeeze(shown, widths []int, limit int) {
	if len(shown) == 0 {
		return
	}
	last := shown[len(shown)-1]
	excess := len(gap)*(len(shown)-1) + min(widths[last], minLast) - limit
	for _, i := range shown[:len(shown)-1] {
		excess += widths[i]
	}
	for ; excess > 0; excess-- {
		widest := -1
		for _, i := range shown[:len(shown)-1] {
			if t.columns[i].flexible && widths[i] > minFlexible && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		widths[widest]--
	}
}

// clip cuts a text to a width in columns.
func clip(text string, limit int) string {
	if columnsOf(text) <= limit {
		return text
	}
	if limit < 1 {
		return ""
	}
	text = strings.ToValidUTF8(text, "?")
	at, left := 0, limit-1
	for i, r := range text {
		if left -= columnsOfRune(r); left < 0 {
			break
		}
		at = i + len(string(r))
	}
	return text[:at] + "…"
}

// columnsOf is how many columns of a terminal a text takes.
func columnsOf(text string) int {
	n := 0
	for _, r := range text {
		n += columnsOfRune(r)
	}
	return n
}

func columnsOfRune(r rune) int {
	if unicode.In(r, unicode.Mn, unicode.Me) {
		return 0 // drawn over the one before
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	default:
		return 1
	}
}
