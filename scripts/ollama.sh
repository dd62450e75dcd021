#!/bin/sh
# Builds Ollama for the tests that have it for a backend, and prints the path of
# the program. It is built once, into a cache outside the checkout.
#
#	scripts/ollama.sh
set -eu

version=v0.17.4
package=github.com/ollama/ollama
include=$(cd "$(dirname "$0")/../test/ollama/include" && pwd)

# The model that the tests ask needs no speed, and without optimization Ollama
# builds in a third of the time.
cflags=-O0

say() { echo "ollama.sh: $*" >&2; }
fail() {
	say "Ollama $version cannot be built: $*"
	exit 1
}

# What makes another program: it gets a name of its own in the cache.
inputs() {
	echo "$version $cflags $(go env GOVERSION GOOS GOARCH CXX | tr '\n' ' ')"
	cat "$include"/*/*.h
}

# Whether the C++ compiler is there and finds the headers that Ollama keeps in
# folders named vendor/, which no zip of a Go module contains.
headers_found() {
	printf '#include <nlohmann/json.hpp>\n#include "stb/stb_image.h"\n' |
		$(go env CXX) -E -x c++ - >/dev/null 2>&1
}

require_headers() {
	headers_found && return
	if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
		say "installing g++, nlohmann-json3-dev and libstb-dev"
		{
			apt-get update -qq &&
				DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
					g++ nlohmann-json3-dev libstb-dev
		} >&2 || fail "apt-get could not install them"
		headers_found && return
	fi
	fail "it needs a C++ compiler ($(go env CXX)) that finds nlohmann/json.hpp and stb/stb_image.h" \
		"(in Debian the packages g++, nlohmann-json3-dev and libstb-dev)"
}

command -v go >/dev/null 2>&1 || fail "it needs Go"
[ -n "${XDG_CACHE_HOME:-${HOME:-}}" ] || fail "neither XDG_CACHE_HOME nor HOME says where to keep it"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/caddy-llmstream
hash=$(inputs | git hash-object --stdin | cut -c 1-12)
program=$cache/ollama-$version-$hash

if [ ! -x "$program" ]; then
	require_headers
	mkdir -p "$cache" || fail "no folder $cache"
	# The folder of its own keeps two runs at a time apart, and the rename leaves
	# either a whole program or none. From there go sees no go.mod of ours.
	build=$(mktemp -d "$program.XXXXXX")
	trap 'rm -rf "$build"' EXIT
	trap 'exit 1' INT TERM
	say "building Ollama $version, once: some minutes"
	begin=$(date +%s)
	(cd "$build" && GOBIN=$build CGO_ENABLED=1 CGO_CPPFLAGS=-I$include CGO_CFLAGS=$cflags CGO_CXXFLAGS=$cflags \
		nice -n 10 go install -p 2 -ldflags='-s -w' "$package@$version" >&2) || fail "see above"
	mv "$build/ollama" "$program"
	say "built in $(($(date +%s) - begin)) s"
fi
echo "$program"
