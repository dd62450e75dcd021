#!/bin/sh
# Runs a Redis, a simulated backend, two replicas and a balancer on port 8080, until
# it is interrupted or the command that it is given has ended:
#
#	./run.sh
#	./run.sh ./deploy.sh
#
# CADDY is the Caddy to run; the one that `make build` builds, unless it says
# otherwise. PORT, and the five ports after it, can be others than 8080.
set -eu
cd "$(dirname "$0")"

CADDY=${CADDY:-../../bin/caddy}
PORT=${PORT:-8080}
RUN=$(mktemp -d)
export CADDY PORT RUN
export REDIS="redis://127.0.0.1:$((PORT + 1))" BACKEND="127.0.0.1:$((PORT + 2))"
export REPLICAS="127.0.0.1:$((PORT + 3)) 127.0.0.1:$((PORT + 4))"

stop() {
	for pid in "$RUN"/*.pid; do
		kill "$(cat "$pid")" 2>/dev/null || true
	done
	wait
	rm -rf "$RUN"
}
trap stop EXIT
trap 'exit 130' INT TERM

redis-server --port $((PORT + 1)) --bind 127.0.0.1 --save '' --dir "$RUN" >"$RUN/redis.log" 2>&1 &
echo $! >"$RUN/redis.pid"
PORT=$((PORT + 2)) "$CADDY" run --config backend.Caddyfile --adapter caddyfile >"$RUN/backend.log" 2>&1 &
echo $! >"$RUN/backend.pid"
./replica.sh 1
./replica.sh 2
"$CADDY" run --config balancer.Caddyfile --adapter caddyfile >"$RUN/balancer.log" 2>&1 &
echo $! >"$RUN/balancer.pid"
until curl -fso /dev/null "http://127.0.0.1:$PORT/ready"; do sleep 0.1; done
echo "two replicas behind http://127.0.0.1:$PORT, logs in $RUN"

if [ $# -gt 0 ]; then
	"$@"
else
	wait
fi
