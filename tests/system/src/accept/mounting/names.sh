# The names that the system uses, in a mount namespace of our own, so that nothing outside of it is changed.
# Called with the program, an empty directory, and a volume in a file of 256 MiB.
# Prints each passed check, one in a line. The first failed check ends it.
set -eu
polder=$1 place=$2 volume=$3
mount --make-rprivate /
sbin=$(readlink -f /sbin)
mkdir "$place/sbin" "$place/a" "$place/b"
cp -a "$sbin/." "$place/sbin"
mount --bind "$place/sbin" "$sbin"
"$polder" install
# A daemon lives in this namespace and would keep it alive.
trap 'umount --lazy "$place/a" "$place/b" 2> /dev/null || :' EXIT
seen() { echo "seen: $*"; }
# The options and the type of the file system that is mounted at a directory.
shown() { findmnt --noheadings --output FSTYPE,OPTIONS --mountpoint "$1"; }
daemon() { polder info --json "$1" | sed -n 's/.*"pid": \([0-9]*\).*/\1/p'; }
status() { wanted=$1; shift; found=0; "$@" > "$place/said" 2>&1 || found=$?
    [ "$found" = "$wanted" ] || { echo "$* ended with $found, not $wanted:"; cat "$place/said"; exit 1; }; }

status 0 mkfs -t polder -L trial -f "$volume"
seen mkfs -t polder
echo "$volume $place/a polder rw,nosuid,commit=4,nofail,x-systemd.automount 0 0" > "$place/fstab"
echo "$volume $place/b polder ro,noauto,defaults 0 2" >> "$place/fstab"
mount --bind "$place/fstab" /etc/fstab
status 0 mount --all
shown "$place/a" | grep -q "^fuse.polder *rw,nosuid"
echo kept > "$place/a/file"
seen mount --all
status 0 mount --options remount,ro "$place/a"
shown "$place/a" | grep -q "^fuse.polder *ro,nosuid"
if echo no > "$place/a/file"; then exit 1; fi 2> /dev/null
status 0 mount --options remount,rw "$place/a"
echo more >> "$place/a/file"
status 0 polder sync "$place/a"
seen mount --options remount
status 8 fsck.polder -p "$volume"
seen fsck of a volume in use
kill -9 "$(daemon "$place/a")"
while [ -e "$place/a/file" ]; do :; done
status 0 mount "$place/a"
grep -q more "$place/a/file"
seen mount of what is in fstab over a dead mount
status 0 umount "$place/a"
status 0 mount "$place/b"
grep -q more "$place/b/file"
status 0 umount "$place/b"
seen mount of what is in fstab read-only
status 0 mount "$place/a"
mkdir "$place/c"
mount --bind "$place/a" "$place/c"
status 0 umount "$place/c"
exec 3> "$place/a/open"
status 32 umount "$place/a"
status 0 umount --lazy "$place/a"
exec 3>&-
status 0 mount "$place/a"
number=$(daemon "$place/a")
dd if=/dev/zero of="$place/a/open" bs=1M count=32 2> /dev/null
status 0 umount "$place/a"
[ ! -e "/proc/$number" ] || grep -q "^State:.Z" "/proc/$number/status"
seen umount that waits for the daemon, and leaves other places alone
status 0 fsck -A -a
status 0 fsck -A -f -n
seen fsck -A of a clean volume
for type in polder fuse.polder; do
    status 0 mount --types $type "$volume" "$place/b" --options noexec
    shown "$place/b" | grep -q "^fuse.polder *rw,noexec"
    echo $type > "$place/b/type"
    status 0 polder sync "$place/b"
    kill -9 "$(daemon "$place/b")"
    status 0 umount --lazy "$place/b"
    grep -q $type - <<WORDS
$(polder cat "$volume" type)
WORDS
    status 1 fsck -A -p
    status 0 fsck -A -p
    seen mount --types $type, and fsck -A after a crash
done
status 1 mount --types polder "$volume" "$place/b" --options data=journal
grep -q "unknown mount option 'data=journal'" "$place/said"
status 32 mount --types polder "$place/none" "$place/b"
seen refusals
polder install --remove
[ ! -e "$sbin/mount.polder" ]
seen install and its removal
