package llmsim_test

import "testing"

// responsesItem is an item of the output of OpenAI's responses.
type responsesItem struct {
	Type      string `json:"type"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
	Content   []struct {
		Text string `json:"text"`
	} `json:"content"`
	Summary []struct {
		Text string `json:"text"`
	} `json:"summary"`
}

type responsesObject struct {
	Status string          `json:"status"`
	Output []responsesItem `json:"output"`
	Usage  *struct {
		In  int `json:"input_tokens"`
		Out int `json:"output_tokens"`
	} `json:"usage"`
}

// readResponses reads the deltas of a stream.
func readResponses(t *testing.T, body string) answer {
	t.Helper()
	a := answer{in: -1, out: -1}
	sequence := -1
	for _, e := range splitEvents(t, body) {
		var data struct {
			Type     string          `json:"type"`
			Sequence int             `json:"sequence_number"`
			Delta    string          `json:"delta"`
			Item     responsesItem   `json:"item"`
			Response responsesObject `json:"response"`
		}
		decode(t, e.data, &data)
		if data.Type != e.name || data.Sequence <= sequence || a.ended {
			t.Errorf("event %s has the type %s and the number %d after %d", e.name, data.Type, data.Sequence, sequence)
		}
		sequence = data.Sequence
		switch e.name {
		case "response.output_item.added":
			a.tool += data.Item.Name
		case "response.output_text.delta":
			a.text += data.Delta
		case "response.reasoning_summary_text.delta":
			a.reasoning += data.Delta
		case "response.function_call_arguments.delta":
			a.arguments += data.Delta
		case "response.completed":
			whole := wholeResponses(data.Response)
			a.finish, a.in, a.out, a.ended = whole.finish, whole.in, whole.out, true
		}
	}
	return a
}

func readWholeResponses(t *testing.T, body string) answer {
	t.Helper()
	var whole responsesObject
	decode(t, body, &whole)
	return wholeResponses(whole)
}

func wholeResponses(whole responsesObject) answer {
	a := answer{finish: whole.Status, in: -1, out: -1, ended: true}
	for _, item := range whole.Output {
		a.tool += item.Name
		a.arguments += item.Arguments
		for _, part := range item.Content {
			a.text += part.Text
		}
		for _, part := range item.Summary {
			a.reasoning += part.Text
		}
	}
	if whole.Usage != nil {
		a.in, a.out = whole.Usage.In, whole.Usage.Out
	}
	return a
}
