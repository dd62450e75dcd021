package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// echoed are placeholders that a config may send upstream, by the header field
// that they are sent in.
var echoed = map[string]string{
	"X-Auth":      "{http.auth.user.id}",
	"X-Tier":      "{tier}-{quota}",
	"X-Vars":      "{http.vars.greeting}",
	"X-Capture":   "{http.regexp.api.2}/{re.api.word}",
	"X-Orig-Uri":  "{http.request.orig_uri}",
	"X-Orig-Path": "{http.request.orig_uri.path.dir}?{http.request.orig_uri.query}",
	"X-Orig":      "{http.request.orig_method}",
	"X-Uri":       "{http.request.method} {http.request.uri}",
	"X-Body":      "{http.vars.body}",
	"X-Host":      "{http.request.host}",
	"X-Field":     "{http.request.header.X-In}",
	"X-Query":     "{http.request.uri.query.q}",
	"X-Cookie":    "{http.request.cookie.c}",
	"X-Client":    "{http.request.remote.host} {client_ip}",
	"X-Same-Id":   "{http.request.uuid} {http.vars.id}",
	"X-Before":    "{http.response.header.X-Before}",
	"X-Server":    "{http.shutting_down}",
	"X-Unknown":   "{http.vars.nothing}",
}

// echoSite sends all of echoed to a backend, with what sets them before.
func echoSite(options, backend string) string {
	var up strings.Builder
	for field, value := range echoed {
		_, _ = fmt.Fprintf(&up, "header_up %s %q\n", field, value)
	}
	return `ADDR {
	basic_auth {
		ann $2a$04$O8OSy7KtWXYi8SjjBwO//.bCSGCp8P78A12XlAQbt2DCkenTTWNfG
	}
	map {http.request.header.X-In} {tier} {quota} {
		~^go(.*)$ "$1 of gold" 100
		default none 0
	}
	@api path_regexp api ^/api/(v1)/(\w+)/(?P<word>\w+)$
	vars @api {
		greeting "hello {http.request.header.X-In}"
		id {http.request.uuid}
		body {http.request.body}
	}
	header X-Before set
	handle_path /api/* {
		rewrite * {path}?{query}&added=1
		llm_stream {
			` + options + `
		}
		reverse_proxy ` + backend + ` {
			lb_try_duration 10s
			lb_try_interval 20ms
			` + up.String() + `
		}
	}
}`
}

// echoRequest is the request to an echoSite.
func echoRequest() request {
	q := post(`{"model":"m","stream":true}`, "X-In", "gold", "Cookie", "c=crumb")
	q.header.Set("Authorization", "Basic YW5uOnNlY3JldA==")
	q.path = "/api/v1/chat/completions?q=a%20b"
	return q
}

// heardBy is a backend that keeps what it was sent.
func heardBy(got chan<- http.Header) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		h := r.Header.Clone()
		h.Set("X-Request", fmt.Sprint(r.Method, " ", r.RequestURI, " ", r.Host, " ", r.ContentLength, " ", string(body)))
		got <- h
		rig.EventStream(w)
		rig.Say(w, rig.Chunk("a")+rig.Stop)
	}
}

// wantEcho checks what a backend has got of an echoRequest.
func wantEcho(t *testing.T, c *rig.Caddy, got http.Header) {
	t.Helper()
	host, _, _ := net.SplitHostPort(c.Addr)
	id, id2, _ := strings.Cut(got.Get("X-Same-Id"), " ")
	if id == "" || id != id2 {
		t.Errorf("the request has the ids %q and %q", id, id2)
	}
	for field, want := range map[string]string{
		"X-Auth": "ann", "X-Tier": "ld of gold-100", "X-Vars": "hello gold", "X-Capture": "chat/completions",
		"X-Orig-Uri": "/api/v1/chat/completions?q=a%20b", "X-Orig-Path": "/api/v1/chat/?q=a%20b", "X-Orig": "POST",
		"X-Uri": "POST /v1/chat/completions?q=a%20b&added=1", "X-Body": `{"model":"m","stream":true}`,
		"X-Host": host, "X-Field": "gold", "X-Query": "a b", "X-Cookie": "crumb", "X-Client": "127.0.0.1 127.0.0.1",
		"X-Before": "set", "X-Server": "false", "X-Unknown": "",
		"X-Request":       `POST /v1/chat/completions?q=a%20b&added=1 ` + c.Addr + ` 27 {"model":"m","stream":true}`,
		"X-Forwarded-For": "127.0.0.1", "X-In": "gold", "Accept-Encoding": "identity",
	} {
		equal(t, field, got.Get(field), want)
	}
}

// What a config sends upstream is the same with resume, where the request is not
// made in its client's goroutine, as without.
func TestPlaceholdersReachTheBackend(t *testing.T) {
	for name, options := range map[string]string{"without resume": "", "with resume": "resume /llm", "with drop": "slow_client drop"} {
		t.Run(name, func(t *testing.T) {
			got := make(chan http.Header, 1)
			backend := rig.NewBackend(t, heardBy(got))
			c := rig.Start(t, echoSite(options, backend.Addr))
			complete(t, c, echoRequest())
			wantEcho(t, c, <-got)
		})
	}
}

// It is so too when the client has left before the request was sent.
func TestPlaceholdersAfterTheClientHasLeft(t *testing.T) {
	got := make(chan http.Header, 1)
	addr := rig.FreeAddr(t)
	c := rig.Start(t, echoSite("resume /llm {\ngrace 20s\n}\ndrain {\nspread 10ms\nretry 10ms\n}", addr))
	for range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err := echoRequest().try(ctx, c)
		cancel()
		if err == nil {
			t.Fatal("there was an answer")
		}
	}
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: ln, Config: &http.Server{Handler: heardBy(got), ReadHeaderTimeout: time.Minute}}
	server.Start()
	t.Cleanup(server.Close)
	for range 5 {
		select {
		case h := <-got:
			wantEcho(t, c, h)
		case <-time.After(patience):
			t.Fatal("a request went with its client")
		}
	}
}

// An error of the backend reaches the error routes of the client that asked.
func TestErrorRoutesWithResume(t *testing.T) {
	const routes = `handle_errors {
		header X-Handled yes
		respond "sorry: {err.status_code} {err.message}" {err.status_code}
	}`
	for name, tc := range map[string]struct{ next, want string }{
		"dead backend": {"reverse_proxy " + rig.FreeAddr(t), "502 yes sorry: 502"},
		"error":        {`error "teapot" 418`, "418 yes sorry: 418 teapot"},
		"respond":      {`respond "hi" 203`, "203  hi"},
		"nothing":      {"", "200  "},
	} {
		t.Run(name, func(t *testing.T) {
			c := rig.Start(t, "ADDR {\n\tllm_stream {\n\t\tresume /llm\n\t}\n\t"+tc.next+"\n\t"+routes+"\n}")
			resp := post(`{"stream":true}`).do(t, c)
			body, err := io.ReadAll(resp.Body)
			got := fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("X-Handled"), " ", string(body))
			if err != nil || !strings.HasPrefix(got, tc.want) {
				t.Errorf("%s: %v", got, err)
			}
		})
	}
}

// What is no token stream passes with resume as it does without.
func TestOtherResponsesPassWithResume(t *testing.T) {
	large := strings.Repeat("0123456789", 300<<10)
	answer := func(w http.ResponseWriter, r *http.Request) {
		in, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Set", "1")
		switch r.URL.Path {
		case "/json":
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Etag", `"x"`)
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write(in)
		case "/large":
			w.Header()["X-Twice"] = []string{"a", "b"}
			_, _ = io.WriteString(w, large)
		case "/error":
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Retry-After", "17")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, `{"error":{"message":"slow down"}}`)
		case "/trailer":
			w.Header().Set("Trailer", "X-Sum")
			rig.Say(w, "body")
			w.Header().Set("X-Sum", "42")
			w.Header().Set(http.TrailerPrefix+"X-Late", "43")
		case "/empty":
			w.WriteHeader(http.StatusNoContent)
		case "/redirect":
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(http.StatusTemporaryRedirect)
		case "/cut":
			rig.Say(w, "half")
			panic(http.ErrAbortHandler)
		case "/slowly":
			for _, piece := range []string{"a", "b", "c"} {
				rig.Say(w, piece)
				time.Sleep(10 * time.Millisecond)
			}
		case "/handled":
			w.WriteHeader(http.StatusTeapot)
		}
	}
	client := &http.Client{
		Transport:     http.DefaultClient.Transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	all := map[string]map[string]string{}
	for _, options := range []string{"", "resume /llm", "slow_client drop"} {
		backend := rig.NewBackend(t, answer)
		c := rig.Start(t, "ADDR {\n\theader X-First 1\n\theader >X-Set (.*) <$1>\n\tllm_stream {\n"+options+"\n\t}\n\treverse_proxy "+backend.Addr+
			" {\n@tea status 418\nhandle_response @tea {\nrespond \"no {rp.status_code}\" 200\n}\n}\n}")
		got := make(map[string]string)
		for _, path := range []string{"/json", "/large", "/error", "/trailer", "/empty", "/redirect", "/cut", "/slowly", "/handled"} {
			q := post(`{"a":1}`)
			q.path = path
			resp, err := client.Do(q.build(t, c))
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			resp.Header.Del("Date")
			got[path] = fmt.Sprint(resp.StatusCode, resp.ContentLength, resp.TransferEncoding, resp.Header, resp.Trailer, " ", err, " ", len(body), " ", string(body[:min(len(body), 100)]))
		}
		all[options] = got
	}
	for options, got := range all {
		for path, what := range got {
			equal(t, options+": "+path, what, all[""][path])
		}
		equal(t, "answers", len(got), 9)
	}
	if plain := all[""]["/trailer"]; !strings.Contains(plain, "map[X-Late:[43] X-Sum:[42]]") {
		t.Errorf("trailers: %s", plain)
	}
	if plain := all[""]["/cut"]; !strings.Contains(plain, "unexpected EOF") {
		t.Errorf("a cut answer: %s", plain)
	}
}

// The body was read already, so that a config may send it in a field too; with
// reverse_proxy alone that leaves nothing of it for the backend.
func TestBodyInAField(t *testing.T) {
	got := make(chan http.Header, 1)
	backend := rig.NewBackend(t, heardBy(got))
	c := rig.Start(t, `ADDR {
		llm_stream {
			resume /llm
		}
		reverse_proxy `+backend.Addr+` {
			header_up X-Body {http.request.body}
		}
	}`)
	complete(t, c, post(`{"a":1}`))
	h := <-got
	equal(t, "field", h.Get("X-Body"), `{"a":1}`)
	equal(t, "request", h.Get("X-Request"), "POST "+chatPath+" "+c.Addr+` 7 {"a":1}`)
}
