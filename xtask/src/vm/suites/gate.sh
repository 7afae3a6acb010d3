# A volume on a namespace of NVMe with zones: made, written, killed, mounted and checked; and the device's own report.

daemon() { polder info --json /mnt | sed -n 's/.*"pid": \([0-9]*\).*/\1/p'; }
same() { (cd /mnt && md5sum -c -s /tmp/sums); }
# Zone by zone what is written, in sectors: as the volume has it, and as the kernel is told by the device. Zones are
# 16 MiB apart. A full zone has no pointer, and there are blocks of 4 KiB.
of_volume() { polder zones --list "$zns" | awk 'NR > 1 { print $1, ($4 == "full") ? "full" : $6 * 8 }'; }
of_device() {
    blkzone report "$zns" | sed 's/[:,]/ /g' | awk '{
        start = ""; pointer = ""; state = ""
        for (i = 1; i <= NF; i++) {
            if ($i == "start") start = $(i + 1)
            if ($i == "wptr") pointer = $(i + 1)
            if ($i ~ /^zcond/) state = $0
        }
        print NR - 1, (state ~ /\(fu\)/) ? "full" : pointer
    }' | while read -r zone pointer; do
        case $pointer in full) echo "$zone full" ;; *) echo "$zone $((pointer))" ;; esac
    done
}

polder mkfs "$zns"
polder mount "$zns" /mnt --log /tmp/log
mkdir /mnt/folder
for file in 1 2 3 4 5 6 7 8; do { echo "file $file"; cat /bin/polder; } > /mnt/folder/$file; done
rm /mnt/folder/3
mv /mnt/folder/4 /mnt/four
{ echo "another"; cat /bin/polder; } > /mnt/folder/5
(cd /mnt && md5sum four folder/* > /tmp/sums)
[ "$(wc -l < /tmp/sums)" = 7 ]
polder sync /mnt
echo "written and synced"

# It is killed while it writes.
while cat /bin/polder; do :; done > /mnt/more 2> /dev/null & writer=$!
while [ "$(stat -c %s /mnt/more 2> /dev/null || echo 0)" -lt 9000000 ]; do :; done
kill -9 "$(daemon)"
kill $writer 2> /dev/null || :
wait $writer || :
polder mount "$zns" /mnt --log /tmp/log
same
echo "what was synced is there after kill -9"
echo more >> /mnt/four
rm -f /mnt/more
polder umount /mnt
polder check --data "$zns"
of_volume > /tmp/volume
of_device > /tmp/device
cmp /tmp/volume /tmp/device || { cat /tmp/volume /tmp/device; exit 1; }
[ "$(wc -l < /tmp/device)" = 32 ]
[ "$(grep -v -c ' 0$' /tmp/device)" -ge 4 ]
echo "the device's report of $(wc -l < /tmp/device) zones agrees"
