package loop

import (
	"crypto/tls"
	"net"
	"net/http"
	"reflect"
)

// head is what net/http knows of a response's head.
type head struct {
	sent    bool // or about to be: its status is settled
	chunked bool // the body is sent in chunks; known once the head is sent
	close   bool // the client was told that the connection ends with the response
}

// headOf asks the response writer of net/http that lies below w. No other way
// tells whether what lies between has let the head through, and the fields are
// read only. It reports false where there is no such writer, as on HTTP/2, or
// where net/http has changed, of which a test tells.
func headOf(w http.ResponseWriter) (head, bool) {
	for {
		below, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			break
		}
		w = below.Unwrap()
	}
	v := reflect.ValueOf(w)
	if v.Kind() != reflect.Pointer || v.Type().Elem().PkgPath() != "net/http" || v.Type().Elem().Name() != "response" {
		return head{}, false
	}
	v = v.Elem()
	sent, chunked, closes := v.FieldByName("wroteHeader"), reflect.Value{}, v.FieldByName("closeAfterReply")
	if body := v.FieldByName("cw"); body.Kind() == reflect.Struct {
		chunked = body.FieldByName("chunking")
	}
	for _, field := range []reflect.Value{sent, chunked, closes} {
		if field.Kind() != reflect.Bool {
			return head{}, false
		}
	}
	return head{sent: sent.Bool(), chunked: chunked.Bool(), close: closes.Bool()}, true
}

// unwrap takes off a hijacked connection what wraps it. served is what the
// server had, and gets back; direct is what bytes may be written to straight
// away: a socket, or TLS over one. Both are nil where something wraps the
// connection that may do something to its bytes. early is what was read from it
// and not looked at.
func unwrap(conn net.Conn) (served, direct net.Conn, early []byte) {
	served = conn
	for {
		switch c := conn.(type) {
		case *net.TCPConn, *net.UnixConn, *tls.Conn:
			return served, conn, early
		case interface{ takeOff() (net.Conn, []byte) }:
			below, read := c.takeOff()
			conn, served, early = below, below, append(early, read...)
		default:
			below, ofResponse := caddyWraps(conn)
			if below == nil {
				return nil, nil, nil
			}
			if conn = below; ofResponse {
				served = conn
			}
		}
	}
}

// caddyWraps returns what a wrapper of Caddy's wraps, nil where conn is none of
// those that leave what is written alone: the one that looks for HTTP/2 in the
// first bytes read, and the one of the access log that counts the bytes of one
// response.
func caddyWraps(conn net.Conn) (below net.Conn, ofResponse bool) {
	v := reflect.ValueOf(conn)
	if v.Kind() != reflect.Pointer || v.Type().Elem().PkgPath() != "github.com/caddyserver/caddy/v2/modules/caddyhttp" {
		return nil, false
	}
	switch v.Type().Elem().Name() {
	case "hijackedConn":
		ofResponse = true
	case "http2Conn":
	default:
		return nil, false
	}
	field := v.Elem().FieldByName("Conn")
	if !field.IsValid() || !field.CanInterface() {
		return nil, false
	}
	below, _ = reflect.TypeAssert[net.Conn](field)
	return below, ofResponse
}
