#!/bin/sh
# Runs every fuzz target of the given packages, one after the other, because
# go test fuzzes one at a time.
#
#	scripts/fuzz.sh <time for each> <package>...
set -eu

time=$1
shift
found=0
packages=$(go list "$@")
for package in $packages; do
	# The names come one a line, and after them the "ok" line of the package.
	list=$(go test -list '^Fuzz' "$package")
	for target in $(echo "$list" | grep '^Fuzz'); do
		found=$((found + 1))
		echo "== $package $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$package"
	done
done
echo "$found fuzz targets, $time each"
