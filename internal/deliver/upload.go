package deliver

// beginBeforeUploadLocked lets a stream begin before the request body has been
// read: a backend may answer before it has had the whole prompt. No further
// request is taken from such a connection, for net/http would have to read the
// body to its end first, whenever that may be. c.mu must be held.
func (c *Conn) beginBeforeUploadLocked() {
	if c.Upload != nil && !c.multiplexed && !c.Upload.Ended() {
		c.w.Header().Set("Connection", "close")
		_ = c.rc.EnableFullDuplex()
	}
}
