package enginetest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// prefix begins the name of every metric.
const prefix = "caddy_llm_stream_"

// Scrape returns what metrics have counted, by name and labels as in the text
// format, without the common prefix; of a histogram the number of observations.
func Scrape(tb testing.TB, metrics interface {
	Register(registry prometheus.Registerer) error
},
) map[string]float64 {
	tb.Helper()
	registry := prometheus.NewRegistry()
	if err := metrics.Register(registry); err != nil {
		tb.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		tb.Fatal(err)
	}
	counts := make(map[string]float64)
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			name := strings.TrimPrefix(family.GetName(), prefix)
			labels := make([]string, 0, len(metric.GetLabel()))
			for _, label := range metric.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", label.GetName(), label.GetValue()))
			}
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			// only one of them is there
			counts[name] = metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount())
		}
	}
	return counts
}
