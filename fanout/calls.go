package fanout

// callIndex finds responses by their idempotency key, without a walk over those
// of others. It is guarded by Registry.mu.
type callIndex struct {
	made map[Call]*Response   // which a request of the same call is given
	keys map[string]*Response // the first of those with a key
}

// add indexes a response by its call.
func (c *callIndex) add(r *Response) {
	key := r.Call.Key
	if key == "" {
		return
	}
	c.made[r.Call.identity()] = r
	if first := c.keys[key]; first != nil {
		r.keyNext, first.keyBefore = first, r
	}
	c.keys[key] = r
}

// free makes it possible to make the request of a response again.
func (c *callIndex) free(r *Response) {
	if call := r.Call.identity(); c.made[call] == r {
		delete(c.made, call)
	}
}

// remove takes a response out of the index.
func (c *callIndex) remove(r *Response) {
	c.free(r)
	key := r.Call.Key
	switch {
	case r.keyBefore != nil:
		r.keyBefore.keyNext = r.keyNext
	case key == "" || c.keys[key] != r: // it was removed before
		return
	case r.keyNext != nil:
		c.keys[key] = r.keyNext
	default:
		delete(c.keys, key)
	}
	if r.keyNext != nil {
		r.keyNext.keyBefore = r.keyBefore
	}
	r.keyBefore, r.keyNext = nil, nil
}

// of returns the responses of a key, the newest first.
func (c *callIndex) of(key string) []*Response {
	var found []*Response
	for r := c.keys[key]; r != nil; r = r.keyNext {
		found = append(found, r)
	}
	return found
}
