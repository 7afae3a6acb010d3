# The machine is reset while files are written and synced; every file that was acknowledged is whole afterwards.
# Three boots: the volume says which one this is.
device=$zns

contents() { echo "file $1"; head -c $((($1 * 7919) % 300000)) /bin/polder; }

if ! polder info "$device" > /tmp/info 2>&1; then
    polder mkfs "$device"
fi
polder mount "$device" /mnt --log /tmp/log
mkdir -p /mnt/boots
boot=$(($(ls /mnt/boots | wc -l) + 1))
echo "boot $boot"

found=0
while [ -e "/mnt/$((found + 1))" ] && contents $((found + 1)) | cmp -s - "/mnt/$((found + 1))"; do
    found=$((found + 1))
done
echo "vm: found $found"

if [ $boot -lt 4 ]; then
    touch /mnt/boots/$boot
    number=$found
    last=$((found + 25))
    while :; do
        number=$((number + 1))
        contents $number | dd of=/mnt/$number bs=1M conv=fsync 2> /dev/null
        [ $number -gt $last ] || echo "vm: acknowledged $number"
        # Writing goes on until the power is gone.
        [ $number -ne $last ] || echo "vm: reset"
    done
fi
polder umount /mnt
polder check "$device"
[ $found -ge 75 ]
