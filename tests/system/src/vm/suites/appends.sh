# Volumes on generic devices of NVMe, where the device chooses the place of an append: how many appends are in flight
# in one zone, and whether the device got the bytes that `polder stats` reports. The emulator is queried, which knows
# nothing of Polder.
. /suites/ask

share=85
[ -z "$quick" ] || share=40

written() {
    device=$1 namespace=$2 size=$3
    echo "== $device"
    polder mkfs --force "$device"
    begun=$(of "$(ask traffic "$namespace")" written_bytes)
    ask commands "$namespace" > /dev/null
    polder mount "$device" /mnt --log /tmp/log
    mkdir /mnt/turns /mnt/churn

    # Sixteen threads write files at once, and make each write durable.
    polder-sim turns --directory mount=/mnt/turns --rounds 1 --file 4 --small 256 --synced 128 --names 100
    commands=$(ask commands "$namespace")
    echo "small writes, each synced: $commands"
    [ "$(of "$commands" in_flight)" -ge 2 ]
    [ "$(of "$commands" failed)" = 0 ]

    polder-sim endure --directory /mnt/churn --verify "polder check --data /mnt" --capacity "$size" --percent $share \
        --times 1 --seed "$seed"
    count_both "$namespace"
    commands=$(ask commands "$namespace")
    echo "files made, written over, cut and deleted: $commands"
    [ "$(of "$commands" failed)" = 0 ]
    device_bytes=$((device_bytes - begun))
    user_bytes=$(polder_counts user_bytes)
    polder stats --json /mnt | grep -A9 device_bytes_by_cause
    echo "programs wrote $user_bytes bytes; to the device went, as Polder counts, $polder_bytes, as the emulator counts," \
        "$device_bytes"
    echo "write amplification: $(ratio "$polder_bytes" "$user_bytes") and $(ratio "$device_bytes" "$user_bytes")"
    are_close "$polder_bytes" "$device_bytes"
    polder umount /mnt
    polder check --data "$device"
}

written "/dev/ng${zns#/dev/nvme}" 1 402653184
written "$generic" 2 461373440
