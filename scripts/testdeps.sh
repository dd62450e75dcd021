#!/bin/sh
# Makes sure that what the tests need besides Go is there: a C compiler for the
# race detector, a balancer, Prometheus, Redis, and the SDKs that read the
# dialects. Debian's packages are installed where that takes no question;
# elsewhere the message names them.
set -eu

# need <command> <package>... installs the packages if the command is missing.
need() {
	command=$1
	shift
	if command -v "$command" >/dev/null 2>&1; then
		return
	fi
	if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
		echo "the tests need $command: please install it" >&2
		exit 1
	fi
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
}

need "$(go env CC)" gcc libc6-dev
need haproxy haproxy
# The tests of deploy/ load the alert rules and ask the queries of the dashboard.
scripts/daemon.sh prometheus prometheus promtool
scripts/daemon.sh redis-server redis-server

# npm leaves a lock file of what it installed, newer than the one it read.
sdks=test/sdk
need npm nodejs npm
if [ -z "$(find $sdks/node_modules/.package-lock.json -newer $sdks/package-lock.json 2>/dev/null)" ]; then
	npm ci --prefix $sdks --no-audit --no-fund
fi
