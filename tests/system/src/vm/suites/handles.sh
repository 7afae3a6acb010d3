# The placement handles of the writes of each role, as reported by the device.
queue=/sys/block/${disk#/dev/}/queue
uname -r
echo "$disk: $(cat "$queue/max_write_streams") write streams, discards of $(cat "$queue/discard_max_bytes") bytes"
POLDER_TEST_HANDLES=$disk zone-unit-tests --test-threads=1 --nocapture handles:: > /tmp/said 2>&1 || { cat /tmp/said; exit 1; }
cat /tmp/said
grep -q '^test result: ok. [1-9][0-9]* passed' /tmp/said
if grep skipped /tmp/said; then exit 1; fi
