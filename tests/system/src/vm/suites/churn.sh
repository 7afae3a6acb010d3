# Files are created, overwritten, truncated and deleted at 90 % of the volume's available space until the device has
# been written twice. Then the daemon is killed during writes. Synced files must exist, and everything is compared
# with a model. The device's report of its zones must agree with the volume's.
. /suites/kinds
. /suites/report

# The result of the simulator when it has finished, before it compares.
cat > /tmp/blow << 'END'
set -eu
polder check --data /mnt
polder stats --json /mnt | grep -A9 device_bytes_by_cause
(cd /mnt && find churn -type f -exec md5sum {} + > /tmp/sums)
[ -s /tmp/sums ] || { echo "there are no files"; exit 1; }
polder sync /mnt
daemon=$(polder info --json /mnt | sed -n 's/.*"pid": \([0-9]*\).*/\1/p')
while cat /tmp/contents; do :; done > /mnt/more 2> /dev/null & writer=$!
while [ "$(stat -c %s /mnt/more 2> /dev/null || echo 0)" -lt 5000000 ]; do :; done
kill -9 "$daemon"
kill $writer 2> /dev/null || :
wait $writer || :
polder mount "$device" /mnt --log /tmp/log
(cd /mnt && md5sum -c -s /tmp/sums)
echo "$(wc -l < /tmp/sums) files are there after kill -9"
rm -f /mnt/more
polder check --data /mnt
END

# MiB that the kernel has discarded on a device.
discarded() {
    read -r _ _ _ _ _ _ _ _ _ _ _ _ _ sectors _ < "/sys/block/${1#/dev/}/stat"
    echo $((sectors / 2048))
}

churn() {
    polder mkfs --force "$1"
    [ $kind != disk ] || before=$(discarded "$1")
    size=$((256 << 20))
    polder mount "$1" /mnt --log /tmp/log
    mkdir /mnt/churn
    device=$1 polder-sim endure --directory /mnt/churn --verify 'sh /tmp/blow' --capacity $size --percent 90 \
        --times 2 --seed "$seed"
    polder umount /mnt
    polder check --data "$1"
    case $kind in
    # It has no report of zones, but freed zones are discarded: each zone must have been discarded more than once.
    disk)
        echo "$(($(discarded "$1") - before)) MiB were discarded"
        [ $(($(discarded "$1") - before)) -ge 256 ]
        ;;
    odd) agree_through_view "$1" ;;
    *) agree "$1" ;;
    esac
}
each churn
