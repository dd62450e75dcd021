# A Caddy with this module, from this checkout:
#
#	docker build -t caddy-llmstream .
#	docker run -p 443:443 -p 80:80 -v ./Caddyfile:/etc/caddy/Caddyfile -v caddy_data:/data --stop-timeout 45 caddy-llmstream
#
# The stop timeout is longer than drain deadline (30s) and shutdown_delay together:
# Docker kills after 10 seconds by itself, in the middle of answers.

ARG CADDY_VERSION=2.11.9

FROM caddy:${CADDY_VERSION}-builder AS builder
ARG CADDY_VERSION
COPY . /src
RUN xcaddy build v${CADDY_VERSION} --with github.com/caddy-llmstream/caddy-llmstream@v0.0.0=/src

FROM caddy:${CADDY_VERSION}
COPY --from=builder /usr/bin/caddy /usr/bin/caddy
