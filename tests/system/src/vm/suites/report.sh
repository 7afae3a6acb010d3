# The device's own report of its zones, compared with the volume's.

# The written sectors of each zone: in the volume, and in the kernel's report from the device. A full zone has no
# write pointer, and the device reports none for conventional zones.
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

# The same for a namespace without a block device: through the view whose zones are powers of two.
agree_through_view() {
    modprobe ublk_drv
    polder po2 "$1" --log /tmp/log
    agree /dev/ublkb0
    polder po2 --end /dev/ublkb0
}

# Checks that both agree for an unmounted volume, and that there is something to compare.
agree() {
    of_volume "$1" > /tmp/volume
    of_device "$1" > /tmp/device
    cmp /tmp/volume /tmp/device || { paste /tmp/volume /tmp/device; exit 1; }
    used=$(grep -v -c '^0$' /tmp/device)
    # The log, metadata and data.
    [ "$used" -ge 3 ]
    echo "the device's report of $(wc -l < /tmp/device) zones agrees, $used of them not empty"
}
