package provider

import "github.com/caddy-llmstream/caddy-llmstream/internal/event"

// noUsage is a TokenUsage without a count.
var noUsage = event.TokenUsage{Input: -1, Output: -1}

// outcome gathers what a response will have ended with: the finish of each
// choice and the token counts.
type outcome struct {
	choices []choiceEnd // by index of the choice
	usage   event.TokenUsage
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
	case event.ToolCall:
		o.choice(ev.Choice).tools = true
	case event.Finish:
		if choice := o.choice(ev.Choice); ev.Finish != "" {
			choice.finish, choice.blocked = ev.Finish, ev.Blocked
		}
	case event.Usage:
		if ev.Usage.Input >= 0 {
			o.usage.Input = ev.Usage.Input
		}
		if ev.Usage.Output >= 0 {
			o.usage.Output = ev.Usage.Output
		}
	case event.End, event.Done, event.Failed:
	}
}

// finished reports whether every choice that has appeared has finished.
func (o *outcome) finished() bool {
	for i := range o.choices {
		if choice := &o.choices[i]; choice.seen && choice.finish == "" {
			return false
		}
	}
	return len(o.choices) > 0
}

// result returns what the response has ended with. Choices that never
// appeared are left out.
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
		finish := normalise(choice.finish, choice.tools)
		if choice.blocked {
			finish = event.FinishContentFilter
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

// counts returns the token counts so far, nil where there are none.
func (o *outcome) counts() *event.TokenUsage {
	if o.usage == noUsage {
		return nil
	}
	usage := o.usage
	return &usage
}
