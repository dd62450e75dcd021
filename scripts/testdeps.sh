#!/bin/sh
# Makes sure that what the tests need besides Go is there. The race detector
# needs a C compiler; it is installed where that takes no question.
set -eu

if command -v "$(go env CC)" >/dev/null 2>&1; then
	exit 0
fi
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends gcc libc6-dev
	exit 0
fi
echo "the race detector needs a C compiler ($(go env CC)): please install one" >&2
exit 1
