#!/bin/sh
# Runs a Caddy with a Caddyfile, sends it the request of the README, and checks
# that what comes back is a token stream as the README shows it.
#
#	scripts/smoke.sh <caddy> <Caddyfile>
set -eu

caddy=$1 caddyfile=$2
url=localhost:8080/v1/chat/completions
request='{"model":"sim","stream":true,"messages":[{"role":"user","content":"hi"}]}'

server=
dir=$(mktemp -d)
cleanup() {
	if [ -n "$server" ]; then
		kill -KILL "$server" 2>/dev/null || true
	fi
	rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

fail() {
	echo "smoke: $*" >&2
	for file in headers body log; do
		if [ -s "$dir/$file" ]; then
			echo "-- $file:" >&2
			tail -n 40 "$dir/$file" >&2
		fi
	done
	exit 1
}

start() {
	# What Caddy keeps on disk goes to the temporary folder, too.
	XDG_CONFIG_HOME=$dir XDG_DATA_HOME=$dir \
		"$caddy" run --config "$caddyfile" --adapter caddyfile >"$dir/log" 2>&1 &
	server=$!
	tries=0
	until curl -s -o /dev/null --max-time 2 localhost:8080/; do
		kill -0 "$server" 2>/dev/null || fail "Caddy ended while it started"
		tries=$((tries + 1))
		[ "$tries" -lt 100 ] || fail "Caddy does not listen on :8080 after 10 s"
		sleep 0.1
	done
}

stop() {
	kill "$server"
	tries=0
	while kill -0 "$server" 2>/dev/null; do
		tries=$((tries + 1))
		[ "$tries" -lt 100 ] || fail "Caddy still runs 10 s after SIGTERM"
		sleep 0.1
	done
	code=0
	wait "$server" || code=$?
	server=
	[ "$code" -eq 0 ] || fail "Caddy ended with code $code"
}

header() {
	tr -d '\r' <"$dir/headers" | grep -i "^$1: " | cut -d ' ' -f 2-
}

tr -d '\\\n' <README.md | tr -s ' \t' ' ' | grep -qF "N $url -d '$request'" ||
	fail "the README sends another request than this script"

scripts/ports-free.sh 8080 8081 2019
start
echo "curl -sN $url -d '$request'"
times=$(curl -sN "$url" -d "$request" --max-time 60 -D "$dir/headers" -o "$dir/body" \
	-w '%{time_starttransfer} %{time_total}') || fail "curl ended with code $?"

head -n 1 "$dir/headers" | grep -q ' 200' || fail "the status is not 200"
[ "$(header Content-Type)" = "text/event-stream; charset=utf-8" ] || fail "the content type is wrong"
sed -n 1,6p "$dir/body"
echo "..."
tail -n 4 "$dir/body"
awk -f scripts/frames.awk "$dir/body" || fail "the stream is not as it should be"
grep -q "^id: $(header X-Response-Id):1\$" "$dir/body" || fail "X-Response-Id is not the id of the frames"
echo "$times" | awk '{ printf "first byte after %.1f s, last after %.1f s\n", $1, $2; exit $1 > $2 / 2 }' ||
	fail "the stream was held back and came all at once"

stop
if grep -E '"level":"(error|panic|fatal)"' "$dir/log"; then
	fail "Caddy logged an error"
fi
if grep "is not formatted" "$dir/log"; then
	fail "run caddy fmt --overwrite $caddyfile"
fi
