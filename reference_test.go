package llmstream_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// reference is the document whose end is made from the doc comments.
const reference = "docs/configuration.md"

// referenceBegins is the line after which everything is.
const referenceBegins = "<!-- From here on written by: go test . -run JSONReference -update -->\n"

// modules are what the reference tells of: the name of a type, and what its
// JSON is called.
var modules = [][2]string{
	{"Handler", "http.handlers.llm_stream"},
	{"MaxStreams", "max_streams"},
	{"Timeouts", "timeouts"},
	{"Resume", "resume"},
	{"Drain", "drain"},
	{"Control", "http.handlers.llm_stream_control"},
	{"Transport", "http.reverse_proxy.transport.llm_stream"},
	{"App", "llm_stream, the app"},
	{"Config", "llm_stream.stores.redis"},
	{"Playground", "http.handlers.llm_stream_playground"},
}

// The JSON reference says what the doc comments say.
func TestJSONReference(t *testing.T) {
	text := readFile(t, reference)
	before, got, found := strings.Cut(text, referenceBegins)
	if !found {
		t.Fatalf("%s has no line %q", reference, referenceBegins)
	}
	want := jsonReference(t)
	if got == want {
		return
	}
	if !*update {
		t.Fatalf("%s differs from the doc comments; run this test with -update", reference)
	}
	if err := os.WriteFile(reference, []byte(before+referenceBegins+want), 0o644); err != nil {
		t.Fatal(err)
	}
}

func jsonReference(t *testing.T) string {
	t.Helper()
	types := structTypes(t)
	var b strings.Builder
	for _, m := range modules {
		spec := types[m[0]]
		if spec == nil {
			t.Fatalf("there is no struct %s", m[0])
		}
		fmt.Fprintf(&b, "\n### %s\n\n", m[1])
		if m[0] == "Control" { // its fields are those of the handler
			b.WriteString("The members of `http.handlers.llm_stream` from `timeouts` to `drain`, as the handler has them whose\nresponses are to be found.\n")
			continue
		}
		b.WriteString("| member | type | |\n|---|---|---|\n" + fieldRows(spec, types))
	}
	return b.String()
}

// structTypes returns the structs of this package by name, and the configuration of
// the store Redis.
func structTypes(t *testing.T) map[string]*ast.StructType {
	t.Helper()
	types := make(map[string]*ast.StructType)
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(files, "internal/store/redis/config.go") {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if s, ok := spec.Type.(*ast.StructType); ok {
					types[spec.Name.Name] = s
				}
			}
			return true
		})
	}
	return types
}

// fieldRows returns a line for each field that JSON has, those of embedded
// structs included.
func fieldRows(s *ast.StructType, types map[string]*ast.StructType) string {
	var b strings.Builder
	for _, field := range s.Fields.List {
		if ident, ok := field.Type.(*ast.Ident); ok && len(field.Names) == 0 && types[ident.Name] != nil {
			b.WriteString(fieldRows(types[ident.Name], types))
		}
		if field.Tag == nil {
			continue
		}
		tag, _ := strconv.Unquote(field.Tag.Value)
		name, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
		doc := strings.Join(strings.Fields(field.Doc.Text()), " ")
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", name, jsonType(field.Type), strings.ReplaceAll(doc, "|", `\|`))
	}
	return b.String()
}

// jsonType returns what users call the type of a field.
func jsonType(expr ast.Expr) string {
	switch e := expr.(type) {
	case *ast.StarExpr:
		return "object"
	case *ast.ArrayType:
		return "list of strings"
	case *ast.SelectorExpr:
		if e.Sel.Name == "RawMessage" { // of a guest module
			return "object"
		}
		return "duration"
	case *ast.Ident:
		switch e.Name {
		case "bool":
			return "true or false"
		case "int", "int64":
			return "number"
		case "Duration":
			return "duration"
		}
	}
	return "string"
}
