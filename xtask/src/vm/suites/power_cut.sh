# The machine is reset while files are written and synced; every file that was acknowledged is whole afterwards.
# Four boots, of which the volume says which one this is; through each device of the namespace in turn.
boots=$(polder ls "$zns" /boots 2> /dev/null | wc -l)
if [ $((boots % 2)) -eq 0 ]; then device=$zns; else device=/dev/ng${zns#/dev/nvme}; fi

contents() { echo "file $1"; head -c $((($1 * 7919) % 300000)) /bin/polder; }

polder info "$device" > /tmp/info 2>&1 || polder mkfs "$device"
polder mount "$device" /mnt --log /tmp/log
mkdir -p /mnt/boots
boot=$(($(ls /mnt/boots | wc -l) + 1))
echo "boot $boot, $device"

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
