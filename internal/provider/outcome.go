package provider

import "github.com/caddy-llmstream/caddy-llmstream/internal/event"

// noUsage is a TokenUsage without a count.
var noUsage = event.TokenUsage{Input: -1, Output: -1}

// outcome gathers what a response will have ended with: the finish of each
// choice and the token counts.
type outcome struct {
	choices []choiceEnd // by index of the choice
	usage   event.TokenUsage
	spoke   bool // there was output, be it of a kind that is no event
}

// choiceEnd is how far one choice has come.
type choiceEnd struct {
	seen  bool
	tools bool // the client was asked to call a tool
	// finish is the provider's word, empty as long as there is none. The last
	// one counts: some providers repeat it, some correct it.
	finish  string
	blocked bool
}

// choice returns the choice with this index, which is below maxChoices.
func (o *outcome) choice(index int) *choiceEnd {
	for len(o.choices) <= index {
		o.choices = append(o.choices, choiceEnd{})
	}
	choice := &o.choices[index]
	choice.seen = true
	return choice
}

// take notes what an event says. Its kind is not a terminal one.
func (o *outcome) take(ev *event.Event) {
	switch ev.Kind {
	case event.Text, event.Reasoning, event.Refusal:
		o.choice(ev.Choice)
		o.spoke = true
	case event.ToolCall:
		o.choice(ev.Choice).tools = true
		o.spoke = true
	case event.Finish:
		if choice := o.choice(ev.Choice); ev.Finish != "" {
			choice.finish, choice.blocked = ev.Finish, ev.Blocked
		}
	case event.Usage:
		addCount(&o.usage.Input, ev.Usage.Input)
		addCount(&o.usage.Output, ev.Usage.Output)
		addCount(&o.usage.CachedInput, ev.Usage.CachedInput)
		addCount(&o.usage.CacheWrite, ev.Usage.CacheWrite)
		addCount(&o.usage.Reasoning, ev.Usage.Reasoning)
	case event.End, event.Done, event.Failed:
	}
}

// addCount takes a count for the one that is known. The last one counts, but a
// 0 never replaces a count: some providers leave out in this way what they have
// said before.
func addCount(known *int64, count int64) {
	if count > 0 || *known < 0 {
		*known = count
	}
}

// finished reports whether every choice that has appeared has finished.
func (o *outcome) finished() bool {
	finished, open := o.progress()
	return finished && !open
}

// progress reports whether a choice has finished, and whether one that has
// appeared has not.
func (o *outcome) progress() (finished, open bool) {
	for i := range o.choices {
		if choice := &o.choices[i]; choice.seen {
			finished = finished || choice.finish != ""
			open = open || choice.finish == ""
		}
	}
	return finished, open
}

// failure returns the word with which the generation has failed, empty where
// a choice has ended well.
func (o *outcome) failure() string {
	word := ""
	for i := range o.choices {
		choice := &o.choices[i]
		switch {
		case !choice.seen:
		case choice.reason() != finishFailed:
			return ""
		case word == "":
			word = choice.finish
		}
	}
	return word
}

// reason returns why the choice has ended.
func (c *choiceEnd) reason() event.FinishReason {
	if c.blocked {
		return event.FinishContentFilter
	}
	return normalize(c.finish, c.tools)
}

// result returns what the response has ended with, which has not failed.
// Choices that never appeared are left out.
func (o *outcome) result() *event.Result {
	var ends []event.ChoiceFinish
	word := ""
	for i := range o.choices {
		choice := &o.choices[i]
		if !choice.seen {
			continue
		}
		if len(ends) == 0 {
			word = choice.finish
		}
		finish := choice.reason()
		if finish == finishFailed { // while another one ended well
			finish = event.FinishOther
		}
		ends = append(ends, event.ChoiceFinish{Choice: i, Finish: finish})
	}
	r := &event.Result{Finish: event.FinishStop, ProviderFinish: word}
	if len(ends) > 0 {
		r.Finish = ends[0].Finish
	}
	if len(ends) > 1 {
		r.Choices = ends
	}
	r.Usage = o.counts()
	return r
}

// counts returns the token counts so far, nil where there are none. A part is
// never larger than the whole.
func (o *outcome) counts() *event.TokenUsage {
	if o.usage == noUsage {
		return nil
	}
	usage := o.usage
	return &usage
}
