# Runs in the guest, read by its shell: two ends of a cable for two cards, and one measurement between them.
# $ip is iproute2's: busybox's knows no rule tables of this kind. /share holds veth.ko.

# A veth pair whose two addresses both belong to this host. The kernel would hand packets from one to the
# other without the pair; so sending looks at table 100 first, which says "over the cable", and only what
# comes out of the cable is looked up among the host's own addresses.
cable() {
  insmod /share/veth.ko && $ip link set eth0 down &&
    $ip link add left mtu "$1" address 52:54:00:78:00:01 type veth \
      peer name right mtu "$1" address 52:54:00:78:00:02 || return
  for end in left right; do
    echo 1 >/proc/sys/net/ipv4/conf/$end/accept_local
    echo 0 >/proc/sys/net/ipv4/conf/$end/rp_filter
    echo 1 >/proc/sys/net/ipv6/conf/$end/disable_ipv6
    $ip link set $end up || return
  done
  $ip addr add 10.78.0.1/32 dev left && $ip addr add 10.78.0.2/32 dev right &&
    $ip route add 10.78.0.2/32 dev left src 10.78.0.1 table 100 &&
    $ip route add 10.78.0.1/32 dev right src 10.78.0.2 table 100 &&
    $ip rule add pref 10 iif left table local && $ip rule add pref 11 iif right table local &&
    $ip rule add pref 20 table 100 && $ip rule add pref 30 table local && $ip rule del pref 0 &&
    ping -c 1 -I 10.78.0.1 10.78.0.2 >/dev/null && ping -c 1 -I 10.78.0.2 10.78.0.1 >/dev/null
}

kernels_cards() {
  rdma link delete rxe0 && rdma link add rxe0 type rxe netdev left && rdma link add rxe1 type rxe netdev right
}

# rxe holds UDP port 4791 of every address while it is loaded.
no_kernels_cards() {
  rdma link delete rxe0 && rdma link delete rxe1 && rmmod rdma_rxe
}

listens() {
  tries=0
  until netstat -ltn | grep -q ":$1 "; do
    tries=$((tries + 1))
    [ $tries -lt 200 ] || return
    usleep 20000
  done
}

# Times of the processor in ticks, context switches, packets on the cable, datagrams that no socket had room for.
counters() {
  echo "counters $1" $(sed -n 's/^cpu //p;s/^ctxt //p' /proc/stat) \
    $(sed -n 's/^ *\(left\|right\):\( *[0-9]*\) *\([0-9]*\).*/\3/p' /proc/net/dev) \
    $(awk '/^Udp: [0-9]/ { print $6 }' /proc/net/snmp)
}

# both CLIENTS_CARD SERVERS_CARD PROGRAM_AND_OPTIONS: its two ends; the client's result lies in /tmp/result
both() {
  left=$1 right=$2
  shift 2
  "$@" -d "$right" >/tmp/server.txt 2>&1 &
  server=$!
  listens 18515 || { cat /tmp/server.txt; return 1; }
  counters before
  "$@" -d "$left" $client_options 127.0.0.1 >/tmp/client.txt 2>&1
  status=$?
  counters after
  [ $status -eq 0 ] || kill $server 2>/dev/null
  wait $server || status=1
  [ $status -eq 0 ] || cat /tmp/client.txt /tmp/server.txt
  return $status
}

perf() {
  client_options="--json /tmp/result.json"
  BEELINE_LANE=wire both "$1" "$2" beeline perf "$3" -s "$4" -m "$5" -t "$6" -n "$7" $8 && cat /tmp/result.json
}

perftest() {
  client_options=
  both rxe0 rxe1 ib_write_bw -F -x 1 -s "$1" -m "$2" -n "$3" && cat /tmp/client.txt
}
