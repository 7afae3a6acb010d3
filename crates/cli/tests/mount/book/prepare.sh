# Prepares the machine that the book assumes, in namespaces of its own: nothing outside of them changes.
# $1 is an empty directory, $2 the program, $3 a loop device that stands for the disk /dev/sdb.
set -e
mount --make-rprivate /
# Mounts of other tests. Their daemons could not end as long as this namespace has the mounts too.
for mount in $(sed -n "s/^[^ ]* [^ ]* [^ ]* [^ ]* \([^ ]*\) .* - fuse.polder.*/\1/p" /proc/self/mountinfo); do
    umount --internal-only --no-canonicalize --lazy "$mount" 2> /dev/null || true
done
mkdir "$1/home" "$1/system"
mount -t tmpfs tmpfs "$1/system"
mkdir "$1/system/dev" "$1/system/upper" "$1/system/work" "$1/system/settings" "$1/system/work-of-settings"

# The programs of a package. Chapters install and remove others in the same place.
mount -t overlay overlay -o "lowerdir=/usr/sbin,upperdir=$1/system/upper,workdir=$1/system/work" /usr/sbin
ln -s "$2" /usr/sbin/polder
for name in mkfs.polder fsck.polder mount.polder umount.polder mount.fuse.polder umount.fuse.polder; do
    ln -s polder "/usr/sbin/$name"
done

# The devices: those that every system has, and one disk.
for device in null zero full random urandom tty fuse; do
    touch "$1/system/dev/$device"
    mount --bind "/dev/$device" "$1/system/dev/$device"
done
for link in fd stdin stdout stderr; do
    cp --no-dereference "/dev/$link" "$1/system/dev/$link"
done
mkdir "$1/system/dev/shm"
cp --archive "$3" "$1/system/dev/sdb"
mount --rbind "$1/system/dev" /dev

mount -t overlay overlay -o "lowerdir=/etc,upperdir=$1/system/settings,workdir=$1/system/work-of-settings" /etc
: > /etc/fstab
for directory in /run /srv /mnt; do
    mount -t tmpfs -o mode=755 tmpfs "$directory"
done
ip link set lo up

export HOME="$1/home" LC_ALL=C PATH=/usr/sbin:/sbin:/usr/bin:/bin
unset POLDER_RUN_DIR XDG_RUNTIME_DIR POLDER_LOG
cd "$HOME"
set +e
