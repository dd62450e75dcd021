#!/bin/sh
# Compiles the module for other systems and processors, without keeping anything,
# and without optimizing: whether it compiles is the question.
#
#	scripts/cross.sh linux/arm64 windows/amd64 …
set -eu

for target; do
	CGO_ENABLED=0 GOOS=${target%/*} GOARCH=${target#*/} go build -gcflags='all=-N -l' .
	echo "compiles for $target"
done
