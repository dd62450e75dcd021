package json_test

import (
	"bytes"
	stdjson "encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
	"unsafe"

	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
)

func TestAppend(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"empty", "", ""},
		{"plain", "Hello, world", "Hello, world"},
		{"quote and reverse solidus", `say "a\b"`, `say \"a\\b\"`},
		{"solidus and html stay", "</script>&", "</script>&"},
		{"short controls", "\b\f\n\r\t", `\b\f\n\r\t`},
		{"other controls", "\x00\x0b\x1b\x1f", `\u0000\u000b\u001b\u001f`},
		{"DEL stays", "\x7f", "\x7f"},
		{"separators", "\u0084\u0085\u2027\u2028\u2029\u202a", "\u0084\\u0085\u2027\\u2028\\u2029\u202a"},
		{"utf-8", "Grüße 你好 🙂", "Grüße 你好 🙂"},
		{"replacement character itself", "a\uFFFDb", "a\uFFFDb"},
		{"stray continuation bytes", "a\x80\x80b", "a\uFFFD\uFFFDb"},
		{"three bytes cut after two", "\xe4\xbdx", "\uFFFDx"},
		{"four bytes cut after three", "\xf0\x9f\x99", "\uFFFD"},
		{"four bytes cut after two", "\xf0\x9fx", "\uFFFDx"},
		{"two bytes cut", "\xc3x", "\uFFFDx"},
		{"surrogate in utf-8", "\xed\xa0\x80", "\uFFFD\uFFFD\uFFFD"},
		{"overlong", "\xc0\xaf\xe0\x80\xaf\xf0\x80\x80\xaf", strings.Repeat("\uFFFD", 9)},
		{"beyond unicode", "\xf4\x90\x80\x80\xf8", strings.Repeat("\uFFFD", 5)},
		{"special behind eight plain bytes", "12345678\n12345678\"1234567é", `12345678\n12345678\"1234567é`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := json.Append([]byte("before:"), test.text)
			if string(got) != "before:"+test.want {
				t.Errorf("got %q, want %q", got, "before:"+test.want)
			}
			if !json.Valid([]byte(test.want)) {
				t.Errorf("%q is not taken for escaped text", test.want)
			}
		})
	}
}

func TestClean(t *testing.T) {
	for _, test := range []struct {
		name, raw, want string
		inPlace         bool
	}{
		{"empty", ``, ``, true},
		{"plain", `Hello, world`, `Hello, world`, true},
		{"short escapes", `a\n\t\b\f\r\"\\b`, `a\n\t\b\f\r\"\\b`, true},
		{"long escapes that have no short form", `\u0000\u001b`, `\u0000\u001b`, true},
		{"utf-8", `Grüße 你好 🙂`, `Grüße 你好 🙂`, true},
		{"escaped separators", `\u0085\u2028\u2029`, `\u0085\u2028\u2029`, true},
		{"raw separators", "a\u2028b\u2029\u0085", `a\u2028b\u2029\u0085`, false},
		{"separators in upper case", `\u202A\u0084`, "\u202a\u0084", false},
		{"raw DEL", "a\x7fb", "a\x7fb", true},
		{"solidus", `<\/b>`, `</b>`, false},
		{"ascii as code unit", `\u0041\u0022\u005c\u005C\u002f`, `A\"\\\\/`, false},
		{"control with a short form", `\u000a\u000A\u0009\u0008\u000c\u000d`, `\n\n\t\b\f\r`, false},
		{"control in upper case", `\u001F`, `\u001f`, false},
		{"two-byte character", `Gr\u00fc\u00dfe`, `Grüße`, false},
		{"three-byte character", `\u4f60\u597D`, `你好`, false},
		{"surrogate pair", `\ud83d\ude42!`, `🙂!`, false},
		{"high surrogate alone", `\ud83d!`, "\uFFFD!", false},
		{"high surrogate at the end", `a\ud83d`, "a\uFFFD", false},
		{"low surrogate alone", `\ude42!`, "\uFFFD!", false},
		{"two high surrogates, then a low one", `\ud83d\ud83d\ude42`, "\uFFFD🙂", false},
		{"high surrogate before another escape", `\ud83d\n`, "\uFFFD\\n", false},
		{"high surrogate before a letter", `\ud83d\u0041`, "\uFFFDA", false},
		{"invalid utf-8", "a\xe4\xbdb", "a\uFFFDb", false},
		{"escape of the replacement", `\ufffd`, "\uFFFD", false},
		// No JSON string has these.
		{"raw controls", "a\nb\x00", `a\nb\u0000`, false},
		{"raw quote", `a"b`, `a\"b`, false},
		{"unknown escape", `a\xb`, `a\\xb`, false},
		{"escape cut off", `a\`, `a\\`, false},
		{"code unit cut off", `a\u00`, `a\\u00`, false},
		{"code unit of other letters", `\u00g0`, `\\u00g0`, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			dst := []byte("before:")
			text, next := json.Clean(dst, test.raw)
			if string(text) != test.want {
				t.Errorf("got %q, want %q", text, test.want)
			}
			if !json.Valid(text) {
				t.Errorf("%q is not escaped text", text)
			}
			if test.inPlace != json.Valid([]byte(test.raw)) {
				t.Errorf("Valid(%q) = %v", test.raw, !test.inPlace)
			}
			if test.inPlace {
				if unsafe.SliceData(text) != unsafe.StringData(test.raw) || len(next) != len(dst) {
					t.Error("copied without need")
				}
			} else if string(next) != "before:"+test.want || cap(text) != len(text) {
				t.Errorf("dst is %q; capacity of the text %d, length %d", next, cap(text), len(text))
			}
		})
	}
}

// A text of one call stays as it is while the next ones are appended.
func TestCleanKeepsEarlierTexts(t *testing.T) {
	var (
		dst   []byte
		texts [][]byte
	)
	for range 100 {
		var text []byte
		text, dst = json.Clean(dst, `\u0041\/`)
		texts = append(texts, text)
	}
	for i, text := range texts {
		if string(text) != "A/" {
			t.Fatalf("text %d is now %q", i, text)
		}
	}
}

func TestAppendPlain(t *testing.T) {
	for _, test := range []struct{ escaped, want string }{
		{``, ``},
		{`plain`, `plain`},
		{`a\n\t\b\f\r\"\\b`, "a\n\t\b\f\r\"\\b"},
		{`\u0000\u001b`, "\x00\x1b"},
		{`\u0085\u2028\u2029`, "\u0085\u2028\u2029"},
		{`\\n`, `\n`},
		{`你\n好`, "你\n好"},
		// Not escaped text: copied.
		{`\/\`, `\/\`},
		{`\u0041\u00`, `\u0041\u00`},
	} {
		if got := json.AppendPlain([]byte(">"), []byte(test.escaped)); string(got) != ">"+test.want {
			t.Errorf("%q: got %q, want %q", test.escaped, got, test.want)
		}
	}
}

func TestValidRefuses(t *testing.T) {
	for _, escaped := range []string{
		`"`, `\`, `\/`, `\x`, "\n", "\x1f", "\x80", "\xed\xa0\x80", "\xe4\xbd",
		`\u000a`, `\u001F`, `\u0041`, `\u00`, `\u0020`, `\u007f`, `\u0084`, `\u0086`, `\u0100`, `\u2027`, `\u202a`, `\ufffd`,
		"\u0085", "\u2028", "\u2029",
		`12345678"`, `1234567\`,
	} {
		if json.Valid([]byte(escaped)) {
			t.Errorf("%q is taken for escaped text", escaped)
		}
	}
}

// FuzzAppend compares with encoding/json, except for what it escapes without
// need and for the number of U+FFFD.
func FuzzAppend(f *testing.F) {
	for _, s := range []string{"", "Hello", "a\"b\\c\n\x00\x1f\x7f", "你好 🙂\u2028", "\xf0\x9f\x99x\xe4\xbd", "</b>&\uFFFD"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		escaped := json.Append(nil, s)
		if !json.Valid(escaped) {
			t.Fatalf("%q: %q is not escaped text", s, escaped)
		}
		var text string
		if err := stdjson.Unmarshal(quoted(escaped), &text); err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		// The decoder of encoding/json knows nothing of subparts, but that of
		// ToValidUTF8 is one for each run, so the texts agree without them.
		if without(text) != without(strings.ToValidUTF8(s, "")) {
			t.Fatalf("%q became %q", s, text)
		}
		if utf8.ValidString(s) && text != s {
			t.Fatalf("%q became %q", s, text)
		}
		if plain := json.AppendPlain(nil, escaped); string(plain) != text {
			t.Fatalf("AppendPlain(%q) = %q, want %q", escaped, plain, text)
		}
		if again, _ := json.Clean(nil, string(escaped)); !bytes.Equal(again, escaped) {
			t.Fatalf("Clean(%q) = %q", escaped, again)
		}
	})
}

// FuzzClean compares with encoding/json wherever raw is a JSON string.
func FuzzClean(f *testing.F) {
	for _, s := range []string{
		"", "Hello", `a\n\"\\`, `\u0041\u000a\u001F\/`, `\ud83d\ude42\ud83d\ud83d\ude42`,
		"\x7f\xf0\x9f\x99x", `\ud83d\`, `\u00`, "raw \n \"",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		text, _ := json.Clean(nil, raw)
		if !json.Valid(text) {
			t.Fatalf("%q: %q is not escaped text", raw, text)
		}
		var want, got string
		if stdjson.Unmarshal(quoted([]byte(raw)), &want) != nil {
			return
		}
		if err := stdjson.Unmarshal(quoted(text), &got); err != nil {
			t.Fatalf("%q: %v", raw, err)
		}
		if utf8.ValidString(raw) && got != want || without(got) != without(want) {
			t.Fatalf("%q: got %q, want %q", raw, got, want)
		}
	})
}

func quoted(escaped []byte) []byte {
	return append(append([]byte{'"'}, escaped...), '"')
}

func without(s string) string { return strings.ReplaceAll(s, "\uFFFD", "") }

func BenchmarkClean(b *testing.B) {
	for _, bench := range []struct{ name, raw string }{
		{"delta", " world"},
		{"sentence", `The quick brown fox jumps over the lazy dog.\n`},
		{"chinese", "敏捷的棕色狐狸跳过了懒狗"},
		{"code units", `\u654f\u6377\u7684\u68d5\u8272`},
		{"long", strings.Repeat("0123456789abcdef", 256)},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.SetBytes(int64(len(bench.raw)))
			b.ReportAllocs()
			dst := make([]byte, 0, 64)
			for b.Loop() {
				_, dst = json.Clean(dst[:0], bench.raw)
			}
		})
	}
}

func BenchmarkAppend(b *testing.B) {
	const text = "The \"quick\" brown fox\njumps over the lazy dog."
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	dst := make([]byte, 0, 128)
	for b.Loop() {
		dst = json.Append(dst[:0], text)
	}
}
