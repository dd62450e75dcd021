//go:build ollama

package ollama_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"github.com/caddy-llmstream/caddy-llmstream/test/ollama/tinymodel"
)

// The models that Ollama has here.
const (
	tiny = "tiny" // as many tokens a second as Ollama can pass on
	slow = "slow" // some hundred a second, where nothing else computes
)

// models are the models and all their names. One has the name for which the
// programs of test/sdk ask.
var models = []model{
	{[]string{tiny, "sim-1"}, tinymodel.Fast},
	{[]string{slow}, tinymodel.Size{Context: 4096, Layers: 1, FeedForward: 4_000}},
}

// model is a model as Ollama has it.
type model struct {
	names []string
	size  tinymodel.Size
}

// create gives Ollama a model.
func (s *server) create(ctx context.Context, dir string, m model) error {
	path := filepath.Join(dir, m.names[0]+".gguf")
	digest, err := writeModel(path, m.size)
	if err != nil {
		return err
	}
	if err := s.upload(ctx, path, digest); err != nil {
		return err
	}
	for _, name := range m.names {
		s.blobs[name] = digest
		body, err := json.Marshal(map[string]any{
			"model":      name,
			"files":      map[string]string{filepath.Base(path): digest},
			"template":   tinymodel.Template,
			"parameters": map[string]any{"num_ctx": m.size.Context, "num_thread": 1},
			"stream":     false,
		})
		if err != nil {
			return err
		}
		got, err := s.post(ctx, "/api/create", body)
		if err != nil {
			return err
		}
		if !bytes.Contains(got, []byte(`"success"`)) {
			return fmt.Errorf("create: %s", got)
		}
	}
	return os.Remove(path)
}

// writeModel writes a model into a file and returns its digest as Ollama writes
// them.
func writeModel(path string, size tinymodel.Size) (digest string, err error) {
	f, err := os.Create(path)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	err = tinymodel.Write(io.MultiWriter(f, sum), size)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), err
}

// upload sends a file to Ollama.
func (s *server) upload(ctx context.Context, path, digest string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.addr+"/api/blobs/"+digest, f)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusCreated {
		return fmt.Errorf("upload: %s", resp.Status)
	}
	return nil
}
