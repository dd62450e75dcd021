#!/bin/sh
# Makes sure that what the tests need besides Go and a C compiler is there: a
# balancer, nginx, Prometheus, Redis, a browser, Python, and the npm packages of the
# tests. On Debian as root it is installed; elsewhere a line says what is missing,
# and the tests that need it are skipped.
set -eu

# need <command> <package>... installs the packages if the command is missing.
need() {
	command=$1
	shift
	if command -v "$command" >/dev/null 2>&1; then
		return
	fi
	if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
		echo "$command is missing: the tests that need it are skipped" >&2
		return
	fi
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
}

need "$(go env CC)" gcc libc6-dev
need haproxy haproxy
need nginx nginx-light
# The tests of deploy/ load the alert rules and ask the queries of the dashboard.
scripts/daemon.sh prometheus prometheus promtool
scripts/daemon.sh redis-server redis-server

need npm nodejs npm
need chromium chromium fonts-dejavu-core
need python3 python3

if ! command -v npm >/dev/null 2>&1; then
	exit 0
fi
# npm leaves a lock file of what it installed, newer than the one it read.
for packages in test/sdk client test/browser examples/usechat; do
	if [ -z "$(find $packages/node_modules/.package-lock.json -newer $packages/package-lock.json 2>/dev/null)" ]; then
		npm ci --prefix $packages --no-audit --no-fund
	fi
done
