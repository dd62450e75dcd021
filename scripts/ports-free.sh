#!/bin/sh
# Fails, naming the port, if something listens on one of the given local ports.
#
#	scripts/ports-free.sh <port>...
set -eu

for port; do
	# curl tells "connection refused" (7) apart from everything that answers.
	code=0
	curl -s -o /dev/null --connect-timeout 2 --max-time 2 "http://localhost:$port/" || code=$?
	case $code in
	7) ;;
	127)
		echo "curl is missing: please install it" >&2
		exit 1
		;;
	*)
		echo "port $port is in use: end what listens there (another make run?) and try again" >&2
		exit 1
		;;
	esac
done
