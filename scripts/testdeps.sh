#!/bin/sh
# Makes sure that what the tests need besides Go is there: a C compiler for the
# race detector, a balancer, Prometheus, a browser, Python, and the npm packages
# of the tests. Debian's packages are installed where that takes no question;
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
scripts/prometheus.sh

need npm nodejs npm
need chromium chromium fonts-dejavu-core
need python3 python3

# npm leaves a lock file of what it installed, newer than the one it read.
for packages in test/sdk client test/browser examples/usechat; do
	if [ -z "$(find $packages/node_modules/.package-lock.json -newer $packages/package-lock.json 2>/dev/null)" ]; then
		npm ci --prefix $packages --no-audit --no-fund
	fi
done
