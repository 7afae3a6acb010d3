# The kernel's information about the devices, and what `polder mkfs` refuses.

refused() { words=$1; shift; if "$@" > /tmp/said 2>&1; then echo "not refused: $*"; exit 1; fi
    cat /tmp/said; grep -q "$words" /tmp/said; }

for device in "$zns" "$flash" "$smr"; do
    queue=/sys/block/${device#/dev/}/queue
    echo "$device: $(cat "$queue/zoned"), $(cat "$queue/nr_zones") zones of $(($(cat "$queue/chunk_sectors") / 2048)) MiB," \
        "at most $(cat "$queue/max_open_zones") open and $(cat "$queue/max_active_zones") active"
    [ "$(cat "$queue/zoned")" = host-managed ]
done
echo "$generic: a namespace without a block device"
[ -c "$generic" ]

null_blk() {
    mkdir "/sys/kernel/config/nullb/$1"
    for setting in size=256 memory_backed=1 zoned=1 zone_size=8 "$2" power=1; do
        echo "${setting#*=}" > "/sys/kernel/config/nullb/$1/${setting%%=*}"
    done
}
null_blk few zone_max_open=4
null_blk conventional zone_nr_conv=32
refused "permits only 4 open zones" polder mkfs /dev/few
# One zone is always written sequentially there.
refused "has 1 zones of 8192 KiB" polder mkfs /dev/conventional
absent=/dev/nvme${generic#/dev/ng}
refused "name $generic" polder mkfs --size 64M "$absent"
refused "name $generic" polder mount "$absent" /mnt
refused "name $generic" polder po2 "$absent"
refused "name $generic" polder zones "$absent" --mount /mnt
refused "there is no such device" polder mkfs --size 64M /dev/nvme9n9
refused "there is no such device" polder mount /dev/nvme9n9 /mnt
refused "a character device" polder mkfs /dev/null
refused "omit --block-size" polder mkfs --block-size 512 "$zns"
refused "omit --max-open" polder mkfs --max-open 8 "$zns"
refused "it contains nothing" polder mount "$zns" /mnt
polder mkfs "$smr" > /tmp/said
cat /tmp/said
grep -q '^3 of them are conventional, from 31 on' /tmp/said

# The kernel's readahead: longer on a disk, which has to move its arm to come back.
reads_ahead() {
    [ "$(grep -c ' /mnt ' /proc/self/mountinfo)" = 0 ]
    polder mount "$1" /mnt
    device=$(grep ' /mnt ' /proc/self/mountinfo | cut -d ' ' -f 3)
    kib=$(cat "/sys/class/bdi/$device/read_ahead_kb")
    polder umount /mnt
    echo "$1: $kib KiB are read ahead"
    [ "$kib" = "$2" ]
}
reads_ahead "$smr" 1024
echo 1 > "/sys/block/${smr#/dev/}/queue/rotational"
reads_ahead "$smr" 8192
