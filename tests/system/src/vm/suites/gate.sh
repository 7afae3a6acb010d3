# A volume on a zoned namespace of NVMe: created, written, killed, mounted and checked, with the device's own report.

. /suites/report

daemon() { polder info --json /mnt | sed -n 's/.*"pid": \([0-9]*\).*/\1/p'; }
same() { (cd /mnt && md5sum -c -s /tmp/sums); }

polder mkfs "$zns"
polder mount "$zns" /mnt --log /tmp/log
mkdir /mnt/folder
for file in 1 2 3 4 5 6 7 8; do { echo "file $file"; cat /tmp/contents; } > /mnt/folder/$file; done
rm /mnt/folder/3
mv /mnt/folder/4 /mnt/four
{ echo "another"; cat /tmp/contents; } > /mnt/folder/5
(cd /mnt && md5sum four folder/* > /tmp/sums)
[ "$(wc -l < /tmp/sums)" = 7 ]
polder sync /mnt
echo "written and synced"

# It is killed during writes.
while cat /tmp/contents; do :; done > /mnt/more 2> /dev/null & writer=$!
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
agree "$zns"
[ "$(wc -l < /tmp/device)" = 32 ]
