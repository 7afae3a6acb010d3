# Random operations on one file, compared with the expected results, beside an unchanging file, so that zones must be
# emptied and data moved.
. /suites/kinds

operations=20000
[ -z "$quick" ] || operations=10000
# The limit for one run: it never unmaps its read mappings, and Linux allows some 65,000 mappings.
round=100000

available() { echo $(($(stat -f -c '%a * %S' /mnt))); }

random_operations() {
    polder mkfs --force "$1"
    polder mount "$1" /mnt --log /tmp/log
    all=$(available)
    head -c $((all * 4 / 10)) /dev/urandom > /mnt/still
    md5sum /mnt/still > /tmp/sums
    cat > /tmp/fsx.toml << END
flen = $((all * 35 / 100))
[opsize]
min = 1
max = 65536
[weights]
close_open = 1
read = 8
write = 12
mapread = 5
mapwrite = 6
invalidate = 1
truncate = 0.1
fsync = 1
fdatasync = 1
posix_fallocate = 0.5
punch_hole = 1
sendfile = 2
posix_fadvise = 1
copy_file_range = 4
END
    done=0
    while [ $done -lt $operations ]; do
        now=$((operations - done))
        [ $now -le $round ] || now=$round
        fsx -f /tmp/fsx.toml -N $now -S $((seed + done)) -P /tmp /mnt/file > /tmp/said 2>&1 ||
            { tail -n 80 /tmp/said; exit 1; }
        done=$((done + now))
    done
    echo "$done operations on $((all * 35 / 100)) bytes"
    polder stats --json /mnt | grep -A12 device_bytes_by_cause
    md5sum -c -s /tmp/sums
    polder umount /mnt
    polder check --data "$1"
}
each random_operations
