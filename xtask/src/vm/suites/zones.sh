# What the kernel says of the devices.
for device in "$zns" "$flash" "$smr"; do
    queue=/sys/block/${device#/dev/}/queue
    echo "$device: $(cat "$queue/zoned"), $(cat "$queue/nr_zones") zones of $(($(cat "$queue/chunk_sectors") / 2048)) MiB," \
        "at most $(cat "$queue/max_open_zones") open and $(cat "$queue/max_active_zones") active"
    [ "$(cat "$queue/zoned")" = host-managed ]
done
echo "$generic: a namespace without a block device"
[ -c "$generic" ]
