# The machine is reset while files are written and synced. Afterwards every acknowledged file must be complete. Each
# kind of namespace gets three resets in turn, and the volumes count them. If a namespace has two devices, they take
# turns. Zoned flash has its memory in the guest and is left out.
. /suites/report

contents() { echo "file $1"; head -c $((($1 * 7919) % 300000)) /tmp/contents; }
boots_of() { polder ls "$1" /boots 2> /dev/null | wc -l; }

# A write pointer must survive a reset of the guest, or this suite would prove nothing. So the last zone of the first
# namespace is written before there is a volume. If it was lost, it would be written again and again, until the
# suite's time is over.
sectors=$(($(cat "/sys/block/${zns#/dev/}/queue/chunk_sectors")))
last=$((($(cat "/sys/block/${zns#/dev/}/queue/nr_zones") - 1) * sectors))
pointer() { of_device "$zns" | tail -n 1; }
if ! polder info "$zns" > /tmp/info 2>&1; then
    if [ "$(pointer)" = 0 ]; then
        dd if=/tmp/contents of="$zns" bs=64k count=16 seek=$((last / 128)) oflag=direct 2> /dev/null
        [ "$(pointer)" = 2048 ]
        echo "vm: reset" > /dev/console
        while :; do :; done
    fi
    [ "$(pointer)" = 2048 ]
    dd if="$zns" bs=64k count=16 skip=$((last / 128)) iflag=direct 2> /dev/null > /tmp/read
    head -c 1048576 /tmp/contents | cmp - /tmp/read
    echo "the pointer of the last zone has survived the reset"
    blkzone reset -o $last -l $sectors "$zns"
fi

total=0
for first in "$zns" "$short" "$generic" "$disk"; do
    boots=$(boots_of "$first")
    # Only these two have a block device and a generic one that can be used with zones.
    device=$first
    case $first in "$zns" | "$short") [ $((boots % 2)) -eq 0 ] || device=/dev/ng${first#/dev/nvme} ;; esac

    polder info "$device" > /tmp/info 2>&1 || polder mkfs "$device"
    polder mount "$device" /mnt --log /tmp/log
    mkdir -p /mnt/boots
    boot=$(($(ls /mnt/boots | wc -l) + 1))
    echo "$device, $((boot - 1)) resets"
    found=0
    while [ -e "/mnt/$((found + 1))" ] && contents $((found + 1)) | cmp -s - "/mnt/$((found + 1))"; do
        found=$((found + 1))
    done
    if [ $boot -lt 4 ]; then
        # Files of all namespaces so far, because the host counts on.
        echo "vm: found $((total + found))"
        touch /mnt/boots/$boot
        number=$found
        last=$((found + 25))
        while :; do
            number=$((number + 1))
            contents $number | dd of=/mnt/$number bs=1M conv=fsync 2> /dev/null
            [ $number -gt $last ] || echo "vm: acknowledged $((total + number))"
            # Writing continues until the power fails.
            # The next boot cannot report the messages of this kernel.
            [ $number -ne $last ] || { if dmesg -r | grep '^<[0-3]>'; then exit 1; fi; echo "vm: reset"; }
        done
    fi
    polder umount /mnt
    polder check "$device"
    [ $found -ge 75 ]
    case $first in
    "$generic") agree_through_view "$first" ;;
    "$zns" | "$short") agree "$first" ;;
    esac
    total=$((total + found))
done
echo "vm: found $total"
