#!/bin/sh
# Every case of the table between two processes on bee0 over the loopback interface's address.
set -u
peer=$1
port=$((20000 + $$ % 20000))
"$peer" --listen --bind 127.0.0.1 -p "$port" &
listener=$!
trap 'kill "$listener" 2>/dev/null' EXIT
"$peer" 127.0.0.1 -p "$port"
status=$?
wait "$listener" || status=1
exit "$status"
