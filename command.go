package llmstream

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/caddy-llmstream/caddy-llmstream/internal/cli"
)

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "llm-stream",
		Usage: "tail|top|bench",
		Short: "Follows, lists and measures LLM token streams",
		Long: `
Works on token streams of a server that runs, through its ordinary endpoints:

	caddy llm-stream tail https://chat.example.com/llm/streams/{id}
	caddy llm-stream top
	caddy llm-stream bench https://chat.example.com/v1/chat/completions
`,
		CobraFunc: func(cmd *cobra.Command) { cmd.AddCommand(tailCommand(), topCommand(), benchCommand()) },
	})
}

// interruptible returns a context that ends with the first interrupt, so that a
// command can say what it has seen.
func interruptible(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(cmd.Context(), os.Interrupt)
}

func tailCommand() *cobra.Command {
	var t cli.Tail
	cmd := &cobra.Command{
		Use:   "tail <url>",
		Short: "Follows a response or a channel",
		Long: `
Prints the text of a response as it comes, from its start or after an event, and
comes back after a cut, a reload or a deploy. Of a channel, every response is
followed, and what starts and ends is said. On a terminal, a status line has the
time to the first token, events per second and how often it came back; elsewhere
only the text goes to standard output.`,
		Example: "  caddy llm-stream tail http://localhost:8080/llm/channels/chat1 -H 'Authorization: Bearer …'",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t.URL = args[0]
			ctx, stop := interruptible(cmd)
			defer stop()
			return t.Run(ctx, cli.Standard())
		},
	}
	cmd.Flags().StringArrayVarP(&t.Headers, "header", "H", nil, "header field to send, as Name: value; may be repeated")
	cmd.Flags().StringVar(&t.LastEventID, "last-event-id", "", "id of the last event that is not wanted again")
	return cmd
}

func topCommand() *cobra.Command {
	var address, config, adapter string
	t := cli.Top{Every: time.Second}
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Lists the responses that run, and stops one on a key",
		Long: `
Asks the admin API what runs and shows it as a table: again and again on a
terminal, where x stops the chosen response, and once elsewhere.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			admin, err := caddycmd.DetermineAdminAPIAddress(address, nil, config, adapter)
			if err != nil {
				return fmt.Errorf("the address of the admin API: %w", err)
			}
			t.Ask = func(method, path string) (*http.Response, error) {
				return caddycmd.AdminAPIRequest(admin, method, path, nil, nil)
			}
			ctx, stop := interruptible(cmd)
			defer stop()
			return t.Run(ctx, cli.Standard())
		},
	}
	cmd.Flags().StringVar(&address, "address", "", "address of the admin API")
	cmd.Flags().StringVarP(&config, "config", "c", "", "configuration file to take the address from")
	cmd.Flags().StringVarP(&adapter, "adapter", "a", "", "config adapter of that file")
	cmd.Flags().DurationVar(&t.Every, "every", t.Every, "time from one look to the next")
	return cmd
}

func benchCommand() *cobra.Command {
	var model, prompt, data string
	b := cli.Bench{}
	cmd := &cobra.Command{
		Use:   "bench <url>",
		Short: "Measures token streams of a backend",
		Long: `
Sends requests for a stream, some of them at the same time, and prints how many
responses were whole, the time to the first token, the time between tokens, and
tokens per second. It reads every format that the handler reads, and what the
handler sends, so that a route and the backend behind it can be compared. A token
is an event with output.`,
		Example: "  caddy llm-stream bench http://localhost:11434/v1/chat/completions --model llama3.2 -n 50 -c 5",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if b.Body, err = benchBody(model, prompt, data); err != nil {
				return err
			}
			b.URL = args[0]
			ctx, stop := interruptible(cmd)
			defer stop()
			return b.Run(ctx, cli.Standard())
		},
	}
	cmd.Flags().IntVarP(&b.Requests, "requests", "n", 100, "how many requests")
	cmd.Flags().IntVarP(&b.Concurrency, "concurrency", "c", 10, "how many at the same time")
	cmd.Flags().StringArrayVarP(&b.Headers, "header", "H", nil, "header field to send, as Name: value; may be repeated")
	cmd.Flags().StringVar(&model, "model", "default", "model of the chat request")
	cmd.Flags().StringVar(&prompt, "prompt", "Count from 1 to 50.", "prompt of the chat request")
	cmd.Flags().StringVarP(&data, "data", "d", "", "request body instead; @file reads it, @- from standard input")
	return cmd
}

// benchBody is the body of the requests: that of a chat in OpenAI's format, or
// what was given.
func benchBody(model, prompt, data string) ([]byte, error) {
	name, isFile := strings.CutPrefix(data, "@")
	switch {
	case data == "":
		return json.Marshal(map[string]any{
			"model": model, "stream": true, "messages": []map[string]string{{"role": "user", "content": prompt}},
		})
	case !isFile:
		return []byte(data), nil
	case name == "-":
		return io.ReadAll(os.Stdin)
	default:
		body, err := os.ReadFile(name) //nolint:gosec // the user names it
		if err != nil {
			return nil, fmt.Errorf("the request body: %w", err)
		}
		return body, nil
	}
}
