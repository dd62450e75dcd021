package loop

// What the package's tests look at from outside.
var (
	Frame   = frame
	Release = release
)

const HeadRoom = headRoom
