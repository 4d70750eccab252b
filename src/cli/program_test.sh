#!/bin/sh
# The program as a user runs it: what it prints, and how it ends. Usage: program_test.sh BEELINE
set -u
beeline=$1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failures=0

fail() {
  failures=$((failures + 1))
  echo "FAILED: $1"
  sed 's/^/    /' "$work/out" "$work/err"
}

# expect STATUS WHAT COMMAND…: runs it, its output lies in $work/out and $work/err.
expect() {
  wanted=$1 what=$2
  shift 2
  timeout 120 "$@" >"$work/out" 2>"$work/err"
  status=$?
  if [ "$wanted" = usage ]; then
    [ $status -gt 1 ] && [ $status -ne 124 ] || fail "$what: status $status, a usage error was due"
  else
    [ $status -eq "$wanted" ] || fail "$what: status $status instead of $wanted"
  fi
}
prints() { grep -Eq -- "$1" "$work/out" || fail "$what: no '$1' on standard output"; }
says() {
  grep -Eq -- "$1" "$work/err" || fail "$what: no '$1' on standard error"
  [ "$(grep -c . "$work/err")" -eq 1 ] || fail "$what: not one sentence"
}

expect 0 "version" "$beeline" --version
prints '^beeline [0-9]+\.[0-9]+\.[0-9]+$'
expect usage "no subcommand" "$beeline"
expect usage "unknown subcommand" "$beeline" dance
says "^beeline: beeline has no command 'dance'; there are: devices, perf, bench, doctor"
expect usage "unknown test" "$beeline" perf dance
says "^beeline: beeline perf has no command 'dance'; there are: write_bw, "
for test in write_bw read_bw send_bw write_lat read_lat send_lat; do
  expect 0 "help of $test" "$beeline" perf $test --help
  prints 'Examples:'
done

expect 0 "devices" "$beeline" devices
prints '^device +interface +state'
prints '^bee0 .*RoCE v2'
expect 0 "devices -v, plain" env BEELINE_ICRC=plain "$beeline" devices -v
prints 'affine'
# With the right to see IP headers it is strict, without it is not; it says which.
expect 0 "devices -v" "$beeline" devices -v
prints '"affine"|\(strict\)'
expect 0 "devices --json" "$beeline" devices --json
prints '"name": "bee0"'
prints '"rx_bytes": [0-9]+'
expect 0 "devices --watch" "$beeline" devices --watch 0.2 --count 2
prints '^device +in GB/s +out GB/s'
prints '^bee0 +[0-9.]+ +[0-9.]+'
expect 0 "devices --watch --json" "$beeline" devices --watch --count 1 --json
prints '"name":"bee0"'
expect 1 "devices --count alone" "$beeline" devices --count 3
says 'give --watch'

for test in write_bw read_bw send_bw; do
  expect 0 "$test" "$beeline" perf $test --loopback -n 200 -s 10000 --check
  prints '#bytes +#iterations +BW peak\[MiB/sec\] +BW average\[MiB/sec\] +MsgRate\[Mpps\]'
  prints '^ 10000 +200 .*checked 2000000 bytes: all right'
done
for test in write_lat read_lat send_lat; do
  expect 0 "$test" "$beeline" perf $test --loopback -n 100
  prints '#bytes #iterations +t_min\[usec\]'
  prints '^ 2 +100 '
done
expect 0 "queue pairs, both ways" "$beeline" perf send_bw --loopback -n 50 -q 3 -b -s 4K --check
prints '^ 4096 +300 .*checked 1228800 bytes: all right'
expect 0 "a time" "$beeline" perf write_bw --loopback -D 0.2
expect 0 "json" "$beeline" perf write_bw --loopback -n 20 --json "$work/result.json"
grep -q '"bandwidth_GBps"' "$work/result.json" || fail "json: no bandwidth in the file"
expect 0 "gbits" "$beeline" perf write_bw --loopback -n 20 --report_gbits
prints 'BW average\[Gb/sec\]'

expect 1 "unknown device" "$beeline" perf write_bw --loopback -d mlx5_9
says '^beeline: no RDMA device mlx5_9; there are: bee0'
expect 1 "unknown GID" "$beeline" perf write_bw --loopback -x 200
says 'no RoCE v2 GID at index 200'
expect 1 "unknown device in the environment" env BEELINE_DEVICE=mlx5_9 "$beeline" perf write_bw --loopback
says '^beeline: no RDMA device mlx5_9; there are: bee0'
expect 1 "unknown GID in the environment" env BEELINE_GID_INDEX=200 "$beeline" perf write_bw --loopback
says 'no RoCE v2 GID at index 200'
expect 0 "options win over the environment" env BEELINE_DEVICE=mlx5_9 BEELINE_GID_INDEX=200 \
  "$beeline" perf write_bw --loopback -d bee0 -x 0 -n 20
expect 1 "unknown port" "$beeline" perf write_bw --loopback -i 7
says '^beeline: -i 7: bee0 has one port only'
expect 1 "rdma_cm" "$beeline" perf write_bw --loopback -R
says '^beeline: -R: that is how perftest connects over rdma_cm'
expect 1 "bad MTU" "$beeline" perf write_bw --loopback -m 1000
says '-m 1000'
expect 1 "size zero" "$beeline" perf write_bw --loopback -s 0
says '-s 0'
expect usage "no iterations" "$beeline" perf write_bw --loopback -n 0
says "^beeline: --iters: '0' is no number from 1 to 1099511627776"
expect 1 "host and loopback" "$beeline" perf write_bw somewhere --loopback
says 'no host'
expect 1 "unwritable json" "$beeline" perf write_bw --loopback --json /nonexistent/x
says '--json /nonexistent/x'
expect 1 "negative size" "$beeline" perf write_bw --loopback -s -1
says '-s -1: give a number'
expect usage "words for numbers" "$beeline" perf write_bw --loopback -n many
expect usage "negative queue pairs" "$beeline" perf write_bw --loopback -q -1
says "^beeline: --qp: '-1' is no number from 1 to 1024"
expect usage "no host's name" "$beeline" perf write_bw ''
says '^beeline: host: is empty'
expect 1 "what only --loopback gives" "$beeline" perf write_bw --control-fd 3
says '^beeline: --control-fd is for the server that --loopback starts'
expect 1 "the same, not open at all" "$beeline" perf write_bw --control-fd -5
says '^beeline: --control-fd is for the server that --loopback starts'
expect usage "too large for a port" "$beeline" perf write_bw -p 70000
expect 1 "unknown host" "$beeline" perf write_bw host.invalid
says '^beeline: host host.invalid: '
expect 1 "nobody there" "$beeline" perf write_bw 127.0.0.1 -p 1
says '^beeline: nobody listens on 127.0.0.1 port 1'
# What is wrong for every rank is said once.
expect 1 "bench, unknown device" "$beeline" bench all_reduce --ranks 3 --device mlx5_9
says '^beeline: no RDMA device mlx5_9; there are: bee0'
expect 1 "bench, bad environment" env BEELINE_LANE=foo "$beeline" bench all_reduce --ranks 3
says '^beeline: BEELINE_LANE=foo'
expect 1 "bench, unknown GID" env BEELINE_GID_INDEX=200 "$beeline" bench all_reduce --ranks 3
says '^beeline: .*no RoCE v2 GID at index 200'
expect 1 "bench, unwritable json" "$beeline" bench all_reduce --ranks 3 --json /nonexistent/x
says '^beeline: --json /nonexistent/x'
expect 1 "bad environment" env BEELINE_LOG=loud "$beeline" devices
says '^beeline: BEELINE_LOG=loud'

# A mistyped variable is named, once, though a second process starts; the log tells how a good run came about.
expect 0 "unknown variable" env BEELINE_TIMOUT=3 "$beeline" perf write_bw --loopback -n 20
says 'there is no variable BEELINE_TIMOUT, so it changes nothing; did you mean BEELINE_TIMEOUT\?'
expect 0 "debug log" env BEELINE_LOG=debug "$beeline" perf write_bw --loopback -n 20 -d bee0
for line in 'device bee0: the one that was named' 'GID [0-9]+ of bee0, .*: the best of' 'UDP port 4791 opened on ' \
  'queue pair 0x[0-9a-f]+ connected to 0x[0-9a-f]+: GID .*, path MTU [0-9]+' 'the card, as it ends: [0-9]+ packets'; do
  grep -Eq -- "$line" "$work/err" || fail "debug log: no '$line' on standard error"
done
[ "$(grep -c . "$work/err")" -lt 40 ] || fail "debug log: a line for more than every object"
expect 0 "debug log of bench" env BEELINE_LOG=debug "$beeline" bench all_reduce --ranks 2 -e 1K -n 1
grep -Eq "group 'bench' formed: rank 1 " "$work/err" || fail "debug log of bench: no group"

# The doctor. What it finds depends on the machine, so only its manners are looked at here.
doctor() {
  what=$1
  shift
  timeout 120 "$beeline" doctor "$@" >"$work/out" 2>"$work/err"
  status=$?
  case $status in 0 | 2 | 3) ;; *) fail "$what: status $status" ;; esac
}
doctor "doctor"
prints '[0-9]+ checks: [0-9]+ failures?, [0-9]+ warnings?, '
doctor "doctor of a group" --only host,nic.mtu --json
prints '"version": 1'
prints '"id": "nic.mtu"'
cp "$work/out" "$work/host.json"
doctor "two equal hosts" --merge "$work/host.json" "$work/host.json"
prints '^nothing differs'
doctor "the same as JSON" --merge "$work/host.json" "$work/host.json" --json
prints '"differences": \[\]'
# As a rank of a job.
expect 1 "compare with nobody" "$beeline" doctor --compare
says 'nothing to compare with: no launcher'
expect 1 "an environment that makes no sense" env PMI_RANK=7 PMI_SIZE=3 "$beeline" doctor --only host
says 'PMI_RANK=7: a launcher writes a number from 0 to 2 there; --no-compare'
doctor "the same, alone" --only host --no-compare
expect 1 "a launcher that tells nothing" env PMI_RANK=1 PMI_SIZE=3 "$beeline" doctor --only host
says 'does not tell where rank 0 is: give --rendezvous HOST:PORT'
expect 1 "no meeting point" "$beeline" doctor --only host --rank 1 --size 2 --rendezvous nowhere
says "'nowhere' is no meeting point"
expect 1 "a rank too many" "$beeline" doctor --only host --rank 2 --size 2 --rendezvous localhost:9
says 'ranks count from 0'
expect 1 "compare and record" "$beeline" doctor --compare --record "$work/x"
doctor "no escape sequences in a file" -v
grep -q "$(printf '\033')" "$work/out" && fail "doctor: escape sequences in a file"
expect 0 "record" "$beeline" doctor --record "$work/host.tar.zst" --pseudonymise
prints 'secrets removed, names and addresses replaced'
cp "$work/host.tar.zst" "$work/before.tar.zst"
expect 1 "record over a recording" "$beeline" doctor --record "$work/host.tar.zst"
says 'there is such a file already; --force replaces it'
cmp -s "$work/host.tar.zst" "$work/before.tar.zst" || fail "a recording was replaced without --force"
expect 0 "record with force" "$beeline" doctor --record "$work/host.tar.zst" --pseudonymise --force
expect 1 "force for nothing" "$beeline" doctor --force
says 'belongs to --record'
doctor "a recording" --root "$work/host.tar.zst"
prints '^host-1: [0-9]+ checks'
mkdir "$work/unpacked" && tar --zstd -xf "$work/host.tar.zst" -C "$work/unpacked"
doctor "an unpacked recording" --root "$work/unpacked"
expect 3 "a peer with no such name" "$beeline" doctor --peer host.invalid
prints 'fix +check the name'
expect 0 "list" "$beeline" doctor --list
prints 'roce.dscp'
expect 0 "explain" "$beeline" doctor --explain roce.dscp
prints 'source +'
expect 0 "doctor's help" "$beeline" doctor --help
prints 'Examples:'
expect 1 "unknown check" "$beeline" doctor --explain roce.magic
says 'no such check'
expect 1 "mistyped check" "$beeline" doctor --explain roce.dscpp
says 'no such check; did you mean roce.dscp\?'
expect 1 "mistyped group" "$beeline" doctor --only rocee
says 'no such group or check; did you mean roce\?'
expect 1 "unknown group" "$beeline" doctor --only magic
says '--only magic: no such group or check'
expect 1 "no such recording" "$beeline" doctor --root /nonexistent
says '--root /nonexistent'
expect 1 "not a recording" "$beeline" doctor --root "$beeline"
says 'not a recording'
expect 1 "one report" "$beeline" doctor --merge "$work/host.json"
says 'at least two'
expect 1 "not a report" "$beeline" doctor --merge "$work/host.json" "$beeline"
says 'not a report'
expect 1 "pseudonyms for nothing" "$beeline" doctor --pseudonymise
says 'belongs to --record'
expect 1 "unwritable recording" "$beeline" doctor --record /nonexistent/x.tar.zst
says '--record /nonexistent/x.tar.zst'
expect 1 "merge and record" "$beeline" doctor --merge a b --record c
expect 1 "an option it does not know" "$beeline" doctor --bogus
# Logs.
failure='node7:1:2 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.7<1> with status=12 opcode=0 len=0 vendor err 129'
echo "$failure" >"$work/job.log"
expect 3 "a log" "$beeline" doctor --log "$work/job.log"
prints '^First failure in here: completion status 12'
expect 3 "logs" "$beeline" doctor --log "$work/job.log" "$work/job.log" --json
prints '"kind": "completion-12"'
expect 3 "a log on standard input" sh -c '"$1" doctor --log <"$2"' sh "$beeline" "$work/job.log"
prints '^First failure in here: completion status 12'
expect 0 "an empty log" "$beeline" doctor --log /dev/null
prints 'nothing known in here'
expect 1 "no such log" "$beeline" doctor --log "$work/job.log" /nonexistent
says '--log /nonexistent: No such file'
expect 1 "a folder" "$beeline" doctor --log "$work"
says 'Is a directory'
# Ctrl-C ends a log that does not end by itself.
mkfifo "$work/endless"
"$beeline" doctor --log <"$work/endless" >"$work/out" 2>"$work/err" &
reader=$!
exec 9>"$work/endless"
echo "$failure" >&9
# Shells start what runs behind them with SIGINT ignored; the doctor catches it nevertheless.
until grep -Eq '^SigCgt:.*[2367abef]$' "/proc/$reader/status"; do sleep 0.1; done
kill -INT $reader
sleep 0.2
exec 9>&-
what="an interrupted log"
wait $reader
[ $? -eq 3 ] || fail "$what: it has no diagnosis"
prints '^First failure in here: completion status 12'

# A server and a client over TCP; then a client that asks for another test.
port=$((20000 + $$ % 20000))
start_server() {
  rm -f "$work/server.out"  # the last one's said "Waiting" too
  timeout 120 "$beeline" perf "$@" -p $port >"$work/server.out" 2>"$work/server.err" &
  server=$!
  for _ in $(seq 200); do
    grep -q Waiting "$work/server.out" 2>/dev/null && return
    sleep 0.1
  done
}
start_server write_bw
expect 0 "client" "$beeline" perf write_bw 127.0.0.1 -p $port -n 100 --check
prints 'checked 6553600 bytes: all right'
wait $server || fail "the server did not end well: $(cat "$work/server.err")"
start_server read_bw
expect 1 "another test" "$beeline" perf write_bw 127.0.0.1 -p $port
says 'server runs read_bw, the client asks for write_bw'
wait $server && fail "the server of another test ended well"

# The server is killed under a client that would run for long.
start_server write_bw
(sleep 1; kill -9 "$(pgrep -P $server)" 2>/dev/null; kill -9 $server 2>/dev/null) &
expect 1 "killed server" "$beeline" perf write_bw 127.0.0.1 -p $port -D 60
says '127.0.0.1 is gone|retry exceeded'
wait

[ $failures -eq 0 ] && echo "the program behaves" || echo "$failures failures"
[ $failures -eq 0 ]
