#!/bin/sh
# Checks that what is committed can be released as the version on top of the
# changelog, and publishes nothing: the same version everywhere, a Caddy built by
# xcaddy from a module proxy on disk, a list of what is in it (an SBOM in
# CycloneDX's format), and the npm package as npm would pack it.
#
#	scripts/release-check.sh <xcaddy> <cyclonedx-gomod> <version of Caddy>
set -eu

xcaddy=$PWD/$1 sbom=$PWD/$2 caddy=$3
module=github.com/caddy-llmstream/caddy-llmstream

version=$(sed -n 's/^## \[\([0-9][^]]*\)\].*/\1/p' CHANGELOG.md | sed -n 1p)
package=$(sed -n 's/^  "version": "\(.*\)",$/\1/p' client/package.json)
if [ "$version" != "$package" ]; then
	echo "CHANGELOG.md says $version, client/package.json $package" >&2
	exit 1
fi

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# Each commit is a version of its own, since the module cache keeps what it has.
candidate=v$version-rc.g$(git rev-parse --short=12 HEAD)
go run ./scripts/modproxy "$candidate" "$dir/proxy"
mkdir -p bin
(
	cd "$dir"
	GOPROXY=file://$dir/proxy,$(go env GOPROXY) GONOSUMDB=$module GOFLAGS=-modcacherw \
		"$xcaddy" build "$caddy" --output "$dir/caddy" --with "$module@$candidate"
)
for name in http.handlers.llm_stream http.handlers.llm_stream_playground llm_stream.stores.redis; do
	"$dir/caddy" list-modules | grep -qx "$name" || { echo "$name is not in the Caddy that xcaddy built" >&2; exit 1; }
done
go version -m "$dir/caddy" | grep -q "$module	$candidate" || { echo "the Caddy that xcaddy built is not of $candidate" >&2; exit 1; }

"$sbom" bin -json -noserial -output "$dir/sbom.json" "$dir/caddy"
grep -q "pkg:golang/$module@$candidate" "$dir/sbom.json" || { echo "the SBOM does not have the module" >&2; exit 1; }
mv "$dir/sbom.json" bin/sbom.cdx.json

if command -v npm >/dev/null 2>&1; then
	(cd client && npm pack --dry-run --json >"$dir/pack.json")
	for file in index.js index.d.ts README.md package.json; do
		grep -q "\"$file\"" "$dir/pack.json" || { echo "$file is not in the npm package" >&2; exit 1; }
	done
fi
echo "$version can be released: $(grep -c '"purl"' bin/sbom.cdx.json) components in bin/sbom.cdx.json"
