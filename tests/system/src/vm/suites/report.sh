# What the device itself says of its zones, beside what the volume on it says.

# Zone by zone what is written, in sectors: as the volume has it, and as the kernel is told by the device. A full zone
# has no pointer, and the device knows none of conventional zones.
of_volume() {
    block=$(($(cat "/sys/block/${1#/dev/}/queue/logical_block_size") / 512))
    polder zones --list "$1" | awk -v block=$block 'NR > 1 && $9 != "conventional" { print ($4 == "full") ? "full" : $6 * block }'
}
of_device() {
    blkzone report "$1" | grep -v 'type: 1(CONVENTIONAL)' | sed 's/[:,]/ /g' | awk '{
        pointer = ""; state = ""
        for (i = 1; i <= NF; i++) {
            if ($i == "wptr") pointer = $(i + 1)
            if ($i ~ /^zcond/) state = $0
        }
        print (state ~ /\(fu\)/) ? "full" : pointer
    }' | while read -r pointer; do
        case $pointer in full) echo full ;; *) echo $((pointer)) ;; esac
    done
}

# The same of a namespace that the kernel makes no block device of: through the view of it whose zones are powers of two.
agree_through_view() {
    modprobe ublk_drv
    polder po2 "$1" --log /tmp/log
    agree /dev/ublkb0
    polder po2 --end /dev/ublkb0
}

# Demands that both say the same of a volume that nobody has mounted, and that there is something to compare.
agree() {
    of_volume "$1" > /tmp/volume
    of_device "$1" > /tmp/device
    cmp /tmp/volume /tmp/device || { paste /tmp/volume /tmp/device; exit 1; }
    used=$(grep -v -c '^0$' /tmp/device)
    # The log, metadata and data.
    [ "$used" -ge 3 ]
    echo "the device's report of $(wc -l < /tmp/device) zones agrees, $used of them not empty"
}
