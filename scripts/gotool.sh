#!/bin/sh
# Builds a Go program at a pinned version into a file of a given name.
#
#	scripts/gotool.sh <package> <version> <file>
set -eu

package=$1 version=$2 file=$3

# The folder of its own keeps two runs at a time apart, and the rename leaves
# either a whole program or none.
mkdir -p "$(dirname "$file")"
build=$(mktemp -d "$file.XXXXXX")
trap 'rm -rf "$build"' EXIT
GOBIN=$(cd "$build" && pwd) go install "$package@$version"
mv "$build"/* "$file"
