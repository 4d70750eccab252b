#!/bin/sh
# The example alone in its group, and what it says to bad numbers. Usage: all_reduce_test.sh ALL_REDUCE
set -u
example=$1
failures=0

refuses() {
  sentence=$1
  shift
  said=$("$example" "$@" 2>&1 >/dev/null) && echo "FAILED: $* is taken" && failures=$((failures + 1))
  case $said in
    "all_reduce: $sentence"*) ;;
    *) echo "FAILED: $* gives: $said" && failures=$((failures + 1)) ;;
  esac
}
refuses "--rank 'one': give a whole number" --rank one --size 2 --rendezvous 127.0.0.1:29500
refuses "--size '2x': give a whole number" --rank 0 --size 2x --rendezvous 127.0.0.1:29500
refuses "--rank '99999999999': give a whole number" --rank 99999999999 --size 2
refuses "--size '': give a whole number" --rank 0 --size
refuses "rank 2 of 2 makes no sense" --rank 2 --size 2 --rendezvous 127.0.0.1:29500
refuses "usage: all_reduce" --ranks 2

said=$("$example" --rank 0 --size 1 --rendezvous 127.0.0.1:29500) || failures=$((failures + 1))
case $said in
  "rank 0 of 1: the sum of 1 ... 1 is 1, over "*) ;;
  *) echo "FAILED: a group of one says: $said" && failures=$((failures + 1)) ;;
esac
[ $failures -eq 0 ] && echo "the example behaves"
[ $failures -eq 0 ]
