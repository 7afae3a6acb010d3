# One namespace of NVMe through both of its devices in turn. The kernel's idea of the write pointer of each zone is
# out of date whenever the other device was used.
door=/dev/ng${zns#/dev/nvme}

refused() { words=$1; shift; if "$@" > /tmp/said 2>&1; then echo "not refused: $*"; exit 1; fi
    grep -q "$words" /tmp/said || { cat /tmp/said; exit 1; }; }

mkdir /tmp/other
# Refusals of the kernel that are answered by a repeated write.
polder mkfs "$zns"
for round in 1 2 3; do
    for device in "$door" "$zns"; do
        polder mount "$device" /mnt --log /tmp/log
        refused "in use" polder mkfs --force "$zns"
        refused "in use" polder mkfs --force "$door"
        [ ! -e /tmp/sums ] || (cd /mnt && md5sum -c -s /tmp/sums)
        for file in 1 2 3; do { echo "$device $round"; cat /tmp/contents; } > /mnt/file$file; done
        (cd /mnt && md5sum file* > /tmp/sums)
        polder umount /mnt
        polder check "$device"
        echo "round $round through $device"
    done
done
polder mkfs --force "$door"
polder mount "$zns" /mnt --log /tmp/log
cp /tmp/contents /mnt
polder umount /mnt
polder check "$zns"

# A reader through one device excludes writers through the other one, but not readers.
for device in "$door" "$zns"; do
    if [ "$device" = "$door" ]; then other=$zns; else other=$door; fi
    polder mount -o ro "$device" /mnt --log /tmp/log
    refused "in use" polder mkfs --force "$other"
    refused "in use" polder mount "$other" /tmp/other --log /tmp/log
    polder mount -o ro "$other" /tmp/other --log /tmp/log
    cmp /tmp/contents /tmp/other/contents
    polder umount /tmp/other
    polder umount /mnt
    echo "$other is not written to while $device is read"
done
