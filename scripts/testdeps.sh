#!/bin/sh
# Makes sure that what the tests need besides Go is there: a C compiler for the
# race detector, and the SDKs that read the dialects. Debian's packages are
# installed where that takes no question; elsewhere the message names them.
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

sdks=test/sdk
if [ -f $sdks/package-lock.json ]; then
	need npm nodejs npm
	# npm leaves a lock file of what it installed, newer than the one it read.
	installed=$sdks/node_modules/.package-lock.json
	if [ -z "$(find $installed -newer $sdks/package-lock.json 2>/dev/null)" ]; then
		npm ci --prefix $sdks --ignore-scripts --no-audit --no-fund || {
			echo "the SDKs of $sdks/package-lock.json could not be installed; their tests will fail" >&2
			rm -f $installed
		}
	fi
fi
if [ -f $sdks/go/go.mod ]; then
	# Without a network the build of the test says which module is missing.
	(cd $sdks/go && GOWORK=off go mod download) ||
		echo "the Go modules of $sdks/go/go.sum could not be had; their tests will fail where they are not in the cache" >&2
fi
