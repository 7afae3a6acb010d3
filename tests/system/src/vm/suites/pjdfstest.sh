# POSIX by the letter, on a volume on each kind of device.
. /suites/kinds

cat > /tmp/pjdfstest.toml << 'END'
[features]
posix_fallocate = {}
utime_now = {}
utimensat = {}
rename_ctime = {}
stat_st_birthtime = {}

[settings]
naptime = 0.01
allow_remount = false

[dummy_auth]
entries = [["nobody", "nogroup"], ["games", "games"]]
END
mkdir /tmp/other

posix() {
    polder mkfs --force "$1"
    polder mount "$1" /mnt --log /tmp/log
    chmod 755 /mnt
    (cd /mnt && pjdfstest --configuration-file /tmp/pjdfstest.toml --secondary-fs /tmp/other --path /mnt) > /tmp/said 2>&1 ||
        { cat /tmp/said; exit 1; }
    # What an ext4 skips, too, and the most links: the C library does not know how many a file on FUSE may have.
    grep '^Summary: 0 failed,' /tmp/said
    [ "$(grep -c ' ok$' /tmp/said)" -ge 380 ] || { grep -A1 skipped /tmp/said; exit 1; }
    polder umount /mnt
    polder check --data "$1"
}
each posix
