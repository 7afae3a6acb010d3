# While a volume is written, a zone of data goes offline and others become read-only, as zoned flash does it. Only the
# blocks of the offline zone are lost. The bytes and files in it were noted before, block by block. A zone that was
# being written is emptied, because its reverse map was never finished. A full zone is read where it is until the next
# mount, and is emptied after that.
device=$flash
settings=/sys/kernel/config/nullb/flash
# The first two zones of the device are conventional, and are the last of the volume. A zone has 32768 sectors.
turn() { echo $((($2 + 2) * 32768)) > $settings/zone_$1; echo "zone $2 is $1"; }
# Numbers of a zone: its live blocks are the seventh.
live_blocks() { polder zones --list /mnt | awk -v zone="$1" '$1 == zone { print $7 }'; }
size() { stat -c %s "$1" 2> /dev/null || echo 0; }

# The kernel's messages about commands to such zones are expected.
echo 'I/O error, dev flash, .* op 0x.:(\(READ\|WRITE\|ZONE_\)' > /tmp/expected

polder mkfs "$device"
polder mount "$device" /mnt --log /tmp/log
mkdir /tmp/files
for file in 1 2 3 4 5 6 7 8 9; do
    { echo "file $file"; head -c $((file * 900000)) /tmp/contents; } > /tmp/files/$file
    cp /tmp/files/$file /mnt/$file
done
for file in /mnt/*; do echo "${file#/mnt/} $(stat -c %i "$file")"; done > /tmp/inodes
polder umount /mnt

# File, zone, first block in the file, number of blocks.
while read -r file inode; do
    polder dump "$device" extent "$inode" |
        sed -n "s/.*address=\([0-9]*\):.* blocks=\([0-9]*\) .* file_block=\([0-9]*\) .*/$file \1 \3 \2/p"
done < /tmp/inodes > /tmp/extents
blocks=$(awk '{ sum += $4 } END { print sum }' /tmp/extents)
echo "$blocks blocks in $(wc -l < /tmp/extents) extents"
[ "$blocks" = "$(for file in /tmp/files/*; do echo $((($(size "$file") + 4095) / 4096)); done | awk '{ sum += $1 } END { print sum }')" ]
# The two zones with the most live blocks.
awk '{ held[$2] += $4 } END { for (zone in held) print held[zone], zone }' /tmp/extents | sort -rn > /tmp/held
lost=$(sed -n '1s/.* //p' /tmp/held)
still=$(sed -n '2s/.* //p' /tmp/held)
grep " $lost " /tmp/extents | sort -k1n -k3n > /tmp/lost
[ -n "$still" ] && [ "$(cut -d' ' -f1 /tmp/lost | sort -u | wc -l)" -ge 2 ]
[ "$(cut -d' ' -f1 /tmp/lost | sort -u | wc -l)" -lt 9 ]

polder mount "$device" /mnt --log /tmp/log
while :; do
    for file in 1 2 3 4; do { echo "new $file"; cat /tmp/contents; } > /mnt/new-$file; done
    echo >> /mnt/rounds
done & writer=$!
until [ "$(size /mnt/rounds)" -ge 1 ]; do sleep 0.1; done
[ "$(live_blocks "$still")" -gt 0 ]
turn offline "$lost"
turn readonly "$still"
written=$(polder zones --list /mnt | awk '$2 == "data" && $3 == "open" { print $1; exit }')
turn readonly "$written"
rounds=$(size /mnt/rounds)
until [ "$(size /mnt/rounds)" -ge $((rounds + 2)) ]; do sleep 0.1; done
kill $writer
wait $writer 2> /dev/null || :
echo "$(size /mnt/rounds) rounds were written meanwhile"
until [ "$(live_blocks "$written")" = 0 ]; do sleep 0.1; done
echo "zone $written, which was being written, holds nothing any more"
for file in 1 2 3 4; do { echo "new $file"; cat /tmp/contents; } > /mnt/new-$file; done
polder umount /mnt

# Changed zones are noticed at the latest when a volume is mounted.
polder mount "$device" /mnt --log /tmp/log
[ "$(polder zones --list /mnt | awk '$4 == "read-only" { print $1 }' | sort)" = "$(printf '%s\n' "$still" "$written" | sort)" ]
[ "$(polder zones --list /mnt | awk '$4 == "offline" { print $1 }')" = "$lost" ]
until [ "$(live_blocks "$still")" = 0 ]; do sleep 0.1; done
echo "zone $still, which was full, holds nothing any more"
polder gc /mnt

# Blocks that cannot be read give zeros here, and are counted.
for file in 1 2 3 4 5 6 7 8 9; do
    cp /tmp/files/$file /tmp/wanted
    expected=0
    grep "^$file " /tmp/lost > /tmp/lost-of-it || :
    while read -r _ _ block count; do
        expected=$((expected + count))
        dd if=/dev/zero of=/tmp/wanted bs=4096 seek="$block" count="$count" conv=notrunc 2> /dev/null
    done < /tmp/lost-of-it
    truncate -s "$(size /tmp/files/$file)" /tmp/wanted
    dd if=/mnt/$file of=/tmp/found bs=4096 iflag=direct conv=noerror,sync 2> /tmp/said || :
    [ "$(grep -c 'Input/output error\|I/O error' /tmp/said || :)" = "$expected" ] || { head /tmp/said; exit 1; }
    truncate -s "$(size /tmp/files/$file)" /tmp/found
    cmp /tmp/found /tmp/wanted
    echo "file $file: $expected of $((($(size /tmp/files/$file) + 4095) / 4096)) blocks are lost, and read as such"
done
for file in 1 2 3 4; do { echo "new $file"; cat /tmp/contents; } | cmp - /mnt/new-$file; done
polder umount /mnt

# The checker names these files and these bytes, and no others. A range may end with the file.
polder check --data "$device" > /tmp/said 2>&1 && { echo "the checker finds nothing"; exit 1; }
cat /tmp/said
polder check --data --json "$device" > /tmp/findings || [ $? = 4 ]
sed -n 's/^ *"\(start\|end\|path\)": "*\([^",]*\)"*,*$/\1 \2/p' /tmp/findings | awk '
    $1 == "start" { start = $2 } $1 == "path" { path = $2 } $1 == "end" { end = $2 }
    start != "" && path != "" && end != "" { sub("^/", "", path); print path, start, end; start = path = end = "" }' |
    sort -k1n -k2n > /tmp/named
while read -r file _ block count; do
    end=$(((block + count) * 4096))
    [ $end -le "$(size /tmp/files/$file)" ] || end=$(size /tmp/files/$file)
    echo "$file $((block * 4096)) $end"
done < /tmp/lost > /tmp/wanted
# Adjacent findings are one.
together() { awk '$1 == file && $2 == to { to = $3; next } file != "" { print file, from, to }
    { file = $1; from = $2; to = $3 } END { print file, from, to }'; }
together < /tmp/named > /tmp/one
together < /tmp/wanted > /tmp/other
cmp /tmp/one /tmp/other || { head -n 40 /tmp/one /tmp/other /tmp/findings; exit 1; }
echo "the checker names these bytes:"
cat /tmp/one
