# A volume on each device: created, used, killed, filled until GC empties zones, and checked. The device's report of
# its zones is compared too.
. /suites/report

refused() { words=$1; shift; if "$@" > /tmp/said 2>&1; then echo "not refused: $*"; exit 1; fi
    grep -q "$words" /tmp/said || { cat /tmp/said; exit 1; }; }
daemon() { polder info --json /mnt | sed -n 's/.*"pid": \([0-9]*\).*/\1/p'; }
# Files whose contents identify the file and the round.
fill() { for file in 1 2 3 4 5 6 7; do { echo "file $file round $1"; cat /tmp/contents; } > /mnt/file$file; done; }
same() { (cd /mnt && md5sum -c -s /tmp/sums); }

for device in "$zns" "$flash" "$smr" "$generic"; do
    echo "== $device"
    polder mkfs --force "$device"
    refused "already contains the Polder volume" polder mkfs "$device"
    refused "omit --zone-size" polder mkfs --force --zone-size 64M "$device"
    polder mount "$device" /mnt --log /tmp/log
    refused "in use" polder mkfs --force "$device"
    cp -r /suites /mnt/suites
    for round in 1 2 3 4; do fill $round; done
    (cd /mnt && md5sum file* suites/* > /tmp/sums)
    polder sync /mnt
    echo "filled and synced"

    # The daemon is killed during writes. The kernel continues to accept writes into its cache.
    while cat /tmp/contents; do :; done > /mnt/more 2> /dev/null & writer=$!
    while [ "$(stat -c %s /mnt/more 2> /dev/null || echo 0)" -lt 9000000 ]; do :; done
    kill -9 "$(daemon)"
    kill $writer 2> /dev/null || :
    wait $writer || :
    polder mount "$device" /mnt --log /tmp/log
    same
    echo "what was synced is there after kill -9"
    echo "rings in use: $(ls -l "/proc/$(daemon)/fd" | grep -c io_uring)"
    rm -f /mnt/more
    fill 5
    (cd /mnt && md5sum file* suites/* > /tmp/sums)
    polder umount /mnt
    polder check "$device"
    polder mount -o ro "$device" /mnt --log /tmp/log
    same
    polder umount /mnt
    polder zones "$device"
    # The kernel creates no block device for the last one.
    if [ "$device" = "$generic" ]; then agree_through_view "$device"; else agree "$device"; fi

    # The written part of each zone, as a file. Zones of the namespace are 32 MiB apart.
    polder zones "$device" --mount /mnt --log /tmp/log
    refused "in use" polder mkfs --force "$device"
    [ "$(cat /mnt/seq/* | wc -c)" = "$(stat -c %s /mnt/seq/* | awk '{ all += $1 } END { print all }')" ]
    if [ "$device" = "$zns" ]; then
        for zone in /mnt/seq/*; do
            blocks=$(($(stat -c %s "$zone") / 4096))
            dd if="$device" bs=4096 skip=$((${zone##*/} * 8192)) count=$blocks 2> /dev/null | cmp - "$zone"
        done
    fi
    polder umount /mnt
    polder check "$device"
done
