// Package jsontext handles the insides of JSON strings, which is the form in
// which text travels through this module: escaped once when it is read, put
// between quotes when it is written.
//
// The invariant: escaped text is the inside of a JSON string (RFC 8259,
// section 7) in its one shortest form. It is valid UTF-8, and only quotation
// marks, reverse solidi and control characters are escaped.
package jsontext
