# Checks that a file is one whole response in the text dialect: frames of the
# one response, their indexes from 1 without a gap, text in all but the last,
# and that one done. Prints what it read, or the first line that is wrong.
#
#	awk -f scripts/frames.awk <file>
#
# The frame is id, event (not for text), data, and a blank line; comments may
# stand between frames. Lengths are counted by hand, since not every awk knows
# the {22} of regular expressions.

function bad(why) {
	printf "line %d: %s: %s\n", NR, why, $0
	failed = 1
	exit 1
}

BEGIN { step = "id" }

step == "id" && /^:/ { next }

step == "id" {
	if ($0 !~ /^id: [0-9A-Za-z]+:[0-9]+$/) bad("not an id line")
	split(substr($0, 5), cursor, ":")
	if (length(cursor[1]) != 22) bad("a response id has 22 characters")
	if (id == "") id = cursor[1]
	if (cursor[1] != id) bad("the id of another response")
	frames++
	if (cursor[2] "" != frames "") bad("the index should be " frames)
	if (done) bad("a frame after the last one")
	event = "text"
	step = "event"
	next
}

step == "event" && /^event: / {
	event = substr($0, 8)
	step = "data"
	next
}

step == "event" || step == "data" {
	if (event == "text") {
		if ($0 !~ /^data: \{"text":".+"\}$/) bad("not a text delta")
		text = text substr($0, 16, length($0) - 17)
	} else if (event == "done") {
		if ($0 !~ /^data: \{"finish_reason":"stop"[,}].*$/) bad("not a normal end")
		done = 1
	} else {
		bad("the event should be text or done, not " event)
	}
	step = "end"
	next
}

step == "end" {
	if ($0 != "") bad("a frame ends with a blank line")
	step = "id"
}

END {
	if (failed) exit 1
	if (step != "id" || !done) {
		print "the response ends in the middle, after frame " frames + 0
		exit 1
	}
	if (frames < 3) {
		print "too short for a stream: frames: " frames
		exit 1
	}
	print frames - 1 " text frames and one done, response " id
	print "text: " text
}
