#!/bin/sh
# Run a command with each file of /run/secrets that is named like a variable in its environment.
set -eu
for file in "${SECRETS:-/run/secrets}"/[A-Z]*; do
  if [ -s "$file" ]; then export "${file##*/}=$(cat "$file")"; fi
done
exec "$@"
