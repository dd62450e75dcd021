#!/bin/sh
# Starts a replica of run.sh, 1 or 2, and waits until it is ready. One that runs is
# told to end first, and has the time that it takes.
set -eu

pid=$RUN/replica$1.pid
if [ -f "$pid" ]; then
	kill -TERM "$(cat "$pid")"
	while kill -0 "$(cat "$pid")" 2>/dev/null; do sleep 0.1; done
fi
PORT=$((PORT + 2 + $1)) ADMIN=$((PORT + 4 + $1)) nohup "$CADDY" run --config Caddyfile --adapter caddyfile >>"$RUN/replica$1.log" 2>&1 &
echo $! >"$pid"
until curl -fso /dev/null "http://127.0.0.1:$((PORT + 2 + $1))/ready"; do sleep 0.1; done
