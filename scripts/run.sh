#!/bin/sh
# Runs a Caddy with a Caddyfile in the foreground, until Ctrl-C.
#
#	scripts/run.sh <caddy> <Caddyfile>
set -eu

caddy=$1 caddyfile=$2

# Caddy listens with SO_REUSEPORT: a second one of the same user would start
# without a word and take half of the first one's connections.
scripts/ports-free.sh 8080 8081 2019

cat <<'EOF'
Caddy answers until Ctrl-C. Open http://localhost:8080/ in a browser, or from
another terminal:

    curl -sN localhost:8080/v1/chat/completions \
      -d '{"model":"sim","stream":true,"messages":[{"role":"user","content":"hi"}]}'

EOF
exec "$caddy" run --config "$caddyfile" --adapter caddyfile
