# Files are made, written over, cut and deleted at 90 % of what the volume offers until the device was written twice, and
# compared with a model. Then the daemon is killed while somebody writes, and what was synced is there.
. /suites/kinds

daemon() { polder info --json /mnt | sed -n 's/.*"pid": \([0-9]*\).*/\1/p'; }
churn() {
    polder mkfs --force "$1"
    size=$((256 << 20))
    times=2
    [ -z "$quick" ] || times=1
    polder mount "$1" /mnt --log /tmp/log
    mkdir /mnt/churn
    polder-sim endure --directory /mnt/churn --verify 'polder check --data /mnt' --capacity $size --percent 90 \
        --times $times --seed 1
    (cd /mnt && find churn -type f -exec md5sum {} + > /tmp/sums)
    [ -s /tmp/sums ]
    polder sync /mnt
    # Whoever writes meets a volume that is full; the daemon is killed in the midst of it.
    while cat /bin/polder; do :; done > /mnt/more 2> /dev/null & writer=$!
    while [ "$(stat -c %s /mnt/more 2> /dev/null || echo 0)" -lt 5000000 ]; do :; done
    kill -9 "$(daemon)"
    kill $writer 2> /dev/null || :
    wait $writer || :
    polder mount "$1" /mnt --log /tmp/log
    (cd /mnt && md5sum -c -s /tmp/sums)
    echo "$(wc -l < /tmp/sums) files are there after kill -9"
    rm -rf /mnt/more /mnt/churn
    polder umount /mnt
    polder check --data "$1"
}
each churn
