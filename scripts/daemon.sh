#!/bin/sh
# Makes sure that a server is there whose Debian package would start it as a
# service, which a machine that runs tests has no use for.
#
#	scripts/daemon.sh <package> <command>...
#
# The service has the name of the package.
set -eu

package=$1
shift
missing=
for command; do
	command -v "$command" >/dev/null 2>&1 || missing="$missing $command"
done
if [ -z "$missing" ]; then
	exit
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
	echo "missing:$missing; the tests that need it are skipped" >&2
	exit 0
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
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package"

# Nor at the next boot. Where there is no systemd there is nothing to disable.
systemctl disable "$package" >/dev/null 2>&1 || true
