# Zones of 96 MiB as a block device with zones of 128 MiB. Block 24576 of a zone (of 4 KiB) is the first one that does
# not exist.

refused() { words=$1; shift; if "$@" > /tmp/said 2>&1; then echo "not refused: $*"; exit 1; fi
    cat /tmp/said; grep -q "$words" /tmp/said; }
queue() { cat "/sys/block/ublkb0/queue/$1"; }
# Bytes of the view that are not zero, from a block on.
counted() { dd if=$view bs=4096 skip="$1" count="$2" 2> /dev/null | tr -d '\0' | wc -c; }
view=/dev/ublkb0

refused "load its module" polder po2 "$generic"
modprobe ublk_drv
refused "use the device itself" polder po2 "$zns"
refused "use the device itself" polder po2 "/dev/ng${zns#/dev/nvme}"
refused "it has conventional zones" polder po2 "$smr"
refused "is not a ublk device" polder po2 --end "$zns"
refused "is not a ublk device" polder po2 --end /dev/ublkb7

polder po2 "$generic" --log /tmp/log
[ "$(queue zoned)" = host-managed ] && [ "$(queue nr_zones)" = 16 ] && [ "$(queue chunk_sectors)" = 262144 ]
[ "$(queue max_open_zones)" = 8 ] && [ "$(queue max_active_zones)" = 10 ]
echo "appends of at most $(queue zone_append_max_bytes) bytes, requests of at most $(queue max_sectors_kb) KiB"
refused "in use" polder po2 "$generic"
refused "in use" polder mkfs "$generic"
# Any process that has it open uses it, even without a claim.
exec 9< $view
refused "in use" polder po2 --end "$view"
exec 9<&-
# A short look, such as udev's, is waited for.
sleep 1 9< $view & looker=$!
until [ -e /proc/$looker/fd/9 ]; do :; done
polder po2 --end "$view"
refused "is not a ublk device" polder po2 --end "$view"

echo "whose device it is"
POLDER_TEST_BLOCK_DEVICE=$flash po2-unit-tests --test-threads=1 --nocapture ublk::removal > /tmp/said 2>&1 || { cat /tmp/said; exit 1; }
grep '^test result: ok. [1-9][0-9]* passed' /tmp/said
if grep skipped /tmp/said; then exit 1; fi
for round in 1 2 3 4 5; do
    polder po2 "$generic" --log /tmp/log
    # Each call ends it, or finds that it has ended. The caller that has ended it can have the device below.
    polder po2 --end "$view" > /tmp/other 2>&1 & other=$!
    polder po2 --end "$view" > /tmp/said 2>&1 || grep "is not a ublk device" /tmp/said
    wait $other || grep "is not a ublk device" /tmp/other
    [ ! -b "$view" ]
done
polder po2 "$generic" --log /tmp/log

echo "the contract"
POLDER_TEST_DEVICE=$view zone-tests --test-threads=1 --nocapture medium::

echo "the gap"
polder mkfs --force "$view"
# Zone 9 is empty. It can be filled to its capacity, and no further.
yes polder | dd of=$view bs=1M count=96 seek=$((9 * 128)) iflag=fullblock oflag=direct
echo 'I/O error, dev ublkb0' > /tmp/expected
refused "error" dd if=/tmp/contents of=$view bs=4096 count=1 seek=$((9 * 32768 + 24576)) oflag=direct
[ "$(counted $((9 * 32768 + 24576)) 8192)" = 0 ]
[ "$(counted $((9 * 32768 + 24576 - 1)) 9000)" = 4096 ]
dd if=$view bs=1M skip=$((9 * 128)) count=96 2> /dev/null | md5sum > /tmp/one
yes polder | head -c 100663296 | md5sum > /tmp/other
cmp /tmp/one /tmp/other

echo "what the device refuses is in the log"
# The kernel opens the zones at the same time, so either limit can be reached first.
echo '\(open\|active\) zones exceeded error, dev ublkb0' >> /tmp/expected
refused "failed" blkzone open $view
blkzone reset $view
grep 'a request of the block device fails operation="open" .*\(Too many references\|Value too large\)' /tmp/log

echo "a volume, through the view and without it"
polder mkfs --force "$view"
for round in 1 2; do
    for device in "$view" "$generic"; do
        [ "$device" = "$view" ] && [ ! -b "$view" ] && polder po2 "$generic" --log /tmp/log
        [ "$device" = "$generic" ] && polder po2 --end "$view" && [ ! -b "$view" ]
        polder mount "$device" /mnt --log /tmp/log
        [ ! -e /tmp/sums ] || (cd /mnt && md5sum -c -s /tmp/sums)
        for file in 1 2 3; do { echo "$device $round"; cat /tmp/contents; } > /mnt/file$file; done
        (cd /mnt && md5sum file* > /tmp/sums)
        if [ "$device" = "$view" ]; then
            refused "in use" polder po2 --end "$view"
        fi
        polder umount /mnt
        polder check "$device"
        echo "round $round through $device"
    done
done

echo "ends"
polder po2 --foreground "$generic" > /tmp/said 2>&1 & server=$!
until grep -q "$view" /tmp/said; do sleep 0.1; done
polder mount "$view" /mnt --log /tmp/log
kill $server
until grep -q "is in use" /tmp/said; do sleep 0.1; done
(cd /mnt && md5sum -c -s /tmp/sums)
polder umount /mnt
kill $server
wait $server
[ ! -b "$view" ]
cat /tmp/said

echo "the end while it is written to"
polder po2 --foreground "$generic" > /tmp/said 2>&1 & server=$!
until grep -q "$view" /tmp/said; do sleep 0.1; done
polder mount "$view" /mnt --log /tmp/log
while cat /tmp/contents; do :; done > /mnt/more 2> /dev/null & writer=$!
while [ "$(stat -c %s /mnt/more 2> /dev/null || echo 0)" -lt 9000000 ]; do :; done
kill $server
until grep -q "is in use" /tmp/said; do sleep 0.1; done
kill $server
wait $server
[ ! -b "$view" ]
kill $writer 2> /dev/null || :
wait $writer || :
polder umount /mnt || umount -l /mnt || :
while pidof polder; do sleep 0.1; done
polder mount "$generic" /mnt --log /tmp/log
(cd /mnt && md5sum -c -s /tmp/sums)
polder umount /mnt
polder check "$generic"

polder po2 "$generic" --log /tmp/log
kill -9 "$(pidof polder)"
while [ -b "$view" ]; do sleep 0.1; done
[ -c /dev/ublkc0 ]
polder po2 --end "$view"
[ ! -c /dev/ublkc0 ]
polder check "$generic"

echo "appends whose place the device chooses, which the kernel takes from its own NVMe target"
modprobe nvme-loop
polder po2 "$generic" --log /tmp/log
target=/sys/kernel/config/nvmet
mkdir $target/subsystems/po2 $target/subsystems/po2/namespaces/1 $target/ports/1
echo 1 > $target/subsystems/po2/attr_allow_any_host
echo -n $view > $target/subsystems/po2/namespaces/1/device_path
echo 1 > $target/subsystems/po2/namespaces/1/enable
echo loop > $target/ports/1/addr_trtype
ln -s $target/subsystems/po2 $target/ports/1/subsystems/po2
echo transport=loop,nqn=po2 > /dev/nvme-fabrics
# Of the three namespaces it is the new one.
new() { ls /sys/class/nvme-generic | grep -v -x -e "${generic#/dev/}" -e "ng${zns#/dev/nvme}"; }
until new > /tmp/new; do sleep 0.1; done
loop=/dev/$(cat /tmp/new)
until [ -c "$loop" ]; do sleep 0.1; done
POLDER_TEST_DEVICE=$loop zone-tests --test-threads=1 --nocapture medium::
cat /tmp/log
