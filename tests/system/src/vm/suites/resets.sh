# Another program resets or finishes zones of a volume, while it is mounted and while it is not, through the block
# device. The volume is used through that device, and then through the generic device. The log continues in another
# zone. Changes made meanwhile survive a kill -9. The blocks in an emptied zone of data are lost and named. A volume
# without its log is restored by salvage.
sectors=$(cat "/sys/block/${zns#/dev/}/queue/chunk_sectors")
act() { [ -n "$2" ] && blkzone "$1" --force -o $(($2 * sectors)) -c 1 "$zns" && echo "another program: $1 of zone $2"; }
# The first zone of a role in a use.
zone() { polder zones --list "$1" | awk -v role="$2" -v use="$3" '$2 == role && $3 == use { print $1; exit }'; }
put() {
    for file in 1 2 3; do { echo "$1 $file"; head -c 2500000 /tmp/contents; } > /mnt/$1-$file; done
    polder sync /mnt
}
sum() { (cd /mnt && md5sum ./*-* > /tmp/sums); }
same() { echo 3 > /proc/sys/vm/drop_caches; (cd "${1:-/mnt}" && md5sum -c -s /tmp/sums); }
daemon() { polder info --json /mnt | sed -n 's/.*"pid": \([0-9]*\).*/\1/p'; }
kill_and_mount() {
    kill -9 "$(daemon)"
    polder mount "$device" /mnt --log /tmp/log
    same
    echo "what was synced is there after kill -9"
}

# The kernel's messages about writes to such zones are expected.
echo 'I/O error, dev nvme.* op 0x.:(\(READ\|WRITE\|ZONE_\)\|nvme.*: I/O Cmd(0x' > /tmp/expected

for device in "$zns" "/dev/ng${zns#/dev/nvme}"; do
    echo "== $device"
    polder mkfs --force "$device"
    polder mount "$device" /mnt --log /tmp/log
    put first
    sum
    act reset "$(zone /mnt log open)"
    put second
    sum
    kill_and_mount
    act finish "$(zone /mnt log open)"
    put third
    sum
    kill_and_mount
    act finish "$(zone /mnt data open)"
    put fourth
    sum
    kill_and_mount

    cp /tmp/sums /tmp/before
    act reset "$(zone /mnt data closed)"
    echo 3 > /proc/sys/vm/drop_caches
    put fifth
    cp /tmp/before /tmp/sums
    (cd /mnt && md5sum -c /tmp/sums 2> /dev/null || :) | sed -n 's/^\.\/\(.*\): FAILED.*/\1/p' | sort > /tmp/lost
    grep -v -F -f /tmp/lost /tmp/before > /tmp/sums
    [ -s /tmp/lost ] && [ -s /tmp/sums ]
    same
    polder umount /mnt
    polder check --data "$device" > /tmp/said 2>&1 && { echo "the checker finds nothing"; exit 1; }
    sed -n 's/.*\/\([a-z]*-[0-9]\).*/\1/p' /tmp/said | sort -u > /tmp/named
    cmp /tmp/lost /tmp/named || { cat /tmp/said; exit 1; }
    echo "lost, and named by the checker: $(tr '\n' ' ' < /tmp/lost)"

    polder zones --list "$device" | awk '$2 == "log" && $4 != "empty" { print $1 }' > /tmp/log-zones
    [ -s /tmp/log-zones ] || { polder zones --list "$device"; exit 1; }
    while read -r zone; do act reset "$zone"; done < /tmp/log-zones
    polder mount "$device" /mnt --log /tmp/log 2> /tmp/said && { echo "it was mounted without its log"; exit 1; }
    grep -q 'polder salvage' /tmp/said || { cat /tmp/said; exit 1; }
    rm -rf /tmp/saved
    polder salvage "$device" /tmp/saved > /tmp/told 2>&1 || :
    same "$(dirname "$(find /tmp/saved -name first-1 -o -name third-1 -o -name fourth-1 | head -n 1)")"
    echo "without its log it is not mounted, and salvage gives back the rest"
done
