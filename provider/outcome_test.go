package provider

import "testing"

func TestFinishIsNotTakenBack(t *testing.T) {
	t.Parallel()
	var o outcome
	for _, word := range []string{"", "length", "stop", ""} {
		o.take(&Event{Kind: Finish, Choice: 2, Finish: word})
	}
	if r := o.result(); !o.finished() || r.ProviderFinish != "stop" || r.Choices != nil {
		t.Errorf("finished: %v, %+v", o.finished(), r)
	}
}
