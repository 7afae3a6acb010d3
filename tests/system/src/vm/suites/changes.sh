# Zones become read-only or go offline while a volume is in use, as zoned flash does it.
device=$flash
settings=/sys/kernel/config/nullb/flash
# The first two zones of the device are conventional, and are the last of the volume. A zone has 32768 sectors.
turn() { [ -n "$2" ]; echo $((($2 + 2) * 32768)) > $settings/zone_$1; echo "zone $2 is $1"; }
# The first zone of a role in a use.
zone() { polder zones --list /mnt | awk -v role="$1" -v use="$2" '$2 == role && $3 == use { print $1; exit }'; }
# The number of an empty zone, and the live blocks of a zone: no file loses anything if an empty zone goes offline.
# The suite looks for one, because the sizes of zones determine where data goes first.
empty() { polder zones --list /mnt | awk '$2 == "free" && $4 == "empty" && $9 == "sequential" { zone = $1 } END { print zone }'; }
live_blocks() { polder zones --list /mnt | awk -v zone="$1" '$1 == zone { print $7 }'; }
# A round writes two zones, and all rounds fit with the lost zones, however large Polder is.
fill() {
    for file in 1 2 3 4; do { echo "file $file of $1"; head -c 8000000 /tmp/contents; } > /mnt/$1-$file; done
    polder sync /mnt
}
sum() { (cd /mnt && md5sum ./*-* > /tmp/sums); }
same() { (cd /mnt && md5sum -c -s /tmp/sums); }

# The kernel's messages about writes to such zones are expected.
echo 'I/O error, dev flash, .* op 0x.:(WRITE\|ZONE_' > /tmp/expected

polder mkfs "$device"
polder mount "$device" /mnt --log /tmp/log
fill zeroth
fill first
sum
turn readonly "$(zone data closed)"
lost=$(empty)
[ "$(live_blocks "$lost")" = 0 ]
turn offline "$lost"
[ "$(live_blocks "$lost")" = 0 ]
same
fill second
sum
turn readonly "$(zone data open)"
fill third
sum
turn readonly "$(zone log open)"
fill fourth
sum
polder umount /mnt
polder mount "$device" /mnt --log /tmp/log
same
turn readonly "$(zone metadata open)"
fill fifth
sum
polder umount /mnt
polder check "$device"
polder mount -o ro "$device" /mnt --log /tmp/log
same
[ "$(polder zones --list /mnt | grep -c 'read-only')" = 4 ]
[ "$(polder zones --list /mnt | awk '$4 == "offline" { print $1 }')" = "$lost" ]
polder umount /mnt
