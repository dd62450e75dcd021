#!/bin/sh
# Replaces both replicas of run.sh, one after the other, while people stream.
set -eu

node people.mjs "http://127.0.0.1:$PORT" "${PEOPLE:-200}" &
people=$!
sleep 2
for replica in 1 2; do
	echo "replacing replica $replica"
	./replica.sh $replica
done
wait $people
