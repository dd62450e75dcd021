// Package provider reads what LLM backends send. A Reader recognizes the wire
// format of a response from its first events and translates it into canonical
// events, one Decoder for each format.
//
// The invariant: whatever the bytes and wherever they are cut, a recognized
// response yields output events in the order in which the model produced them
// and then exactly one terminal event, Done or Failed; an unrecognized one
// yields nothing and can be passed on byte for byte.
package provider
