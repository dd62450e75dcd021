#!/bin/sh
# Makes sure that prometheus and promtool are there: the tests of deploy/ load
# the alert rules and ask the queries of the dashboard. Debian's package would
# start a service on port 9090, which a machine that runs tests has no use for.
set -eu

if command -v prometheus >/dev/null 2>&1 && command -v promtool >/dev/null 2>&1; then
	exit
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
	echo "the tests need prometheus and promtool: please install them" >&2
	exit 1
fi

# What invoke-rc.d asks whether it may start a service; 101 is no.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
	trap 'rm -f $policy' EXIT
	trap 'exit 1' INT TERM
	printf '#!/bin/sh\nexit 101\n' >$policy
	chmod +x $policy
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends prometheus

# Nor at the next boot. Where there is no systemd there is nothing to disable.
systemctl disable prometheus >/dev/null 2>&1 || true
