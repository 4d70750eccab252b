# A job for two guests: guest 0 serves, guest 1 writes 64 KiB messages to it.
if [ "$LAB_GUEST" = 0 ]; then
  exec timeout 60 ib_write_bw -d rxe0 -x "$LAB_GID" -F -s 65536 -n 200
fi
for try in 1 2 3 4 5; do
  sleep 1
  timeout 60 ib_write_bw -d rxe0 -x "$LAB_GID" -F -s 65536 -n 200 "$LAB_PEER" && exit 0
done
exit 1
