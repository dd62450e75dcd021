package llmsim

import (
	"encoding/json"
	"strconv"
	"strings"
)

// ToolArguments is the JSON text of the arguments of every tool call.
const ToolArguments = `{"city":"Zürich","note":"\"7 °C\" 🙂","days":3}`

// toolFragments is how the arguments are cut in the dialects that stream them.
// A fragment may end inside a JSON string, as real ones do.
var toolFragments = []string{`{"ci`, `ty":"Zü`, `rich","note":"\"7`, ` °C\" 🙂"`, `,"days"`, `:3}`}

// The passages, cut into tokens at the bars as a tokenizer would cut them. They
// hold what tends to break on its way: multi-byte letters, an emoji of several
// code points, both kinds of quotation marks, backslashes, markup, tabs and
// newlines.
var (
	answerPassage = newPassage(" A| stream| is| a| brook| of| small| words|:| each| one| comes| alone|," +
		"| and| only| together| do| they| make| sense|.| “|Une| idée| naïve|”,| wrote| the| proxy|,| \"|but| it" +
		"| works|\".|\n|In| Zürich| it| is| 7| °C| and| the| tram| costs| 4|.|60| CHF|;| in| 東京| people| say" +
		"| ありがとう|,| in| Київ| дякую| 🙂|.|\n|if| (|a| <| b| &&| c| !=| '|\\|'|)| {|\n|\t|return| \"|ok|\"|;|\n|}|\n" +
		"|The| family| 👨\u200d👩\u200d👧| is| one| picture| and| five| code| points|.|\n\n")
	reasoningPassage = newPassage(" The| user| wants| an| answer|.| First| the| facts|,| then| the| “|why|”,|" +
		" then| the| words| –| if| \"|x| >| 0|\",| stop| 🤔|.|\n")
)

// choiceShift is how many tokens the text of a choice begins after that of the
// choice before it, so that no two choices have the same token at one time.
const choiceShift = 17

// passage is an endless text: its words over and over, every round with its
// number in front, so that no two parts of the text are the same.
type passage struct {
	words  []string
	quoted []string // the words as JSON strings
	html   []string // the same as a server escapes them that protects HTML
}

func newPassage(words string) *passage {
	p := &passage{words: strings.Split(words, "|")}
	for _, w := range p.words {
		p.quoted = append(p.quoted, string(marshal(w)))
		html, err := json.Marshal(w)
		if err != nil {
			panic(err) // a string always has a JSON form
		}
		p.html = append(p.html, string(html))
	}
	return p
}

// word returns the round of token i, from 1, and its word's index, which is -1
// where the token is the round's number.
func (p *passage) word(i int) (round, index int) {
	size := len(p.words) + 1
	return i/size + 1, i%size - 1
}

// appendQuoted appends token i as a JSON string.
func (p *passage) appendQuoted(dst []byte, i int, html bool) []byte {
	round, index := p.word(i)
	switch {
	case index < 0:
		dst = append(dst, '"')
		dst = strconv.AppendInt(dst, int64(round), 10)
		return append(dst, '.', '"')
	case html:
		return append(dst, p.html[index]...)
	default:
		return append(dst, p.quoted[index]...)
	}
}

// text returns n tokens from token start on.
func (p *passage) text(start, n int) string {
	var b strings.Builder
	for i := start; i < start+n; i++ {
		if round, index := p.word(i); index < 0 {
			b.WriteString(strconv.Itoa(round))
			b.WriteByte('.')
		} else {
			b.WriteString(p.words[index])
		}
	}
	return b.String()
}

// Text returns the answer of n tokens, exactly as a response carries it.
func Text(n int) string { return ChoiceText(0, n) }

// ChoiceText returns the answer of n tokens of one of several choices, from 0.
func ChoiceText(choice, n int) string { return answerPassage.text(choice*choiceShift, n) }

// ReasoningText returns the reasoning of n tokens; it is the same in all choices.
func ReasoningText(n int) string { return reasoningPassage.text(0, n) }
