# Polder and the kernel's own file systems for zones: Zoned XFS, f2fs and btrfs. Each has devices with equal bytes,
# zones of the same size and the same limits. XFS and f2fs need a part without zones, which counts. Bytes written are
# those that the emulator has counted on all devices of a file system. Mount times are in the guest's time, and only
# allow a comparison of the four.
#
# There are two boots: at the end of the first all four file systems are mounted and written to, and the power fails.
. /suites/ask

modprobe xfs
modprobe f2fs
modprobe btrfs
# File systems that refuse operations may report that. On a busy machine the guest's time jumps.
echo 'BTRFS\|F2FS-fs\|XFS ([a-z0-9]*): \|lost filesystem error report\|rcu: ' > /tmp/expected
zones=$(cat "/sys/block/${zns#/dev/}/queue/nr_zones")
raw=$(($(cat "/sys/block/${zns#/dev/}/size") / 2048))

made() { program=$1; shift; /peers/lib/ld-linux-x86-64.so.2 --library-path /peers/lib "/peers/bin/$program" "$@"; }
figure() { echo "vm: figure $name|$1|$2"; }
# Hundredths of a second.
now() { tr -d . < /proc/uptime | cut -d' ' -f1; }

# Sets the properties of a file system: its name, its namespaces, and their devices.
choose() {
    kind=$1
    case $kind in
    polder) name=Polder namespaces=1 ;;
    btrfs) name=btrfs namespaces=2 ;;
    xfs) name="Zoned XFS" namespaces="3 4" ;;
    f2fs) name=f2fs namespaces="5 6" ;;
    esac
    zoned=$(cat "/tmp/device-${namespaces% *}")
    other=$(cat "/tmp/device-${namespaces#* }")
    # Not in the folder of Polder's control sockets, which the mount would hide.
    place=/run/beside-$kind
    mkdir -p "$place"
    # Bytes that the emulator has counted as written, when everything is written. As text, because other shells run it
    # too.
    count="set -e; sync; . /suites/ask; written_to $namespaces"
    [ $kind != polder ] || count="set -e; polder sync $place; $count"
}

make() {
    case $kind in
    polder) polder mkfs --force "$zoned" ;;
    btrfs) made mkfs.btrfs -f -q -m single -d single "$zoned" ;;
    # A part of less than 300 MiB must be requested explicitly.
    xfs) made mkfs.xfs -f -q --unsupported -r zoned=1,rtdev="$zoned" "$other" ;;
    f2fs) made mkfs.f2fs -f -q -m -c "$zoned" "$other" ;;
    esac > /tmp/said 2>&1 || { cat /tmp/said; exit 1; }
}

attach() {
    case $kind in
    polder) polder mount "$zoned" "$place" --log /tmp/log ;;
    btrfs) mount -t btrfs "$zoned" "$place" ;;
    xfs) mount -t xfs -o rtdev="$zoned" "$other" "$place" ;;
    f2fs) mount -t f2fs "$other" "$place" ;;
    esac
}

detach() { case $kind in polder) polder umount "$place" ;; *) umount "$place" ;; esac; }

# Writes one file until there is no space.
usable() {
    dd if=/dev/zero of="$place/fill" bs=1M oflag=direct 2> /dev/null || :
    bytes=$(stat -c %s "$place/fill")
    figure usable "$(awk "BEGIN { printf \"%.1f %%\", 100 * $bytes / ($raw * 1048576) }")"
}

# Creates, overwrites, truncates and deletes files, and makes each write durable, with this share of all bytes of the
# devices in files, until as many bytes have been written as the devices have.
churn() {
    mkdir "$place/churn"
    rm -f /tmp/begun
    polder-sim churn "$place/churn" --level $((raw * $1 / 100)) --write "$raw" \
        --reached "$count > /tmp/begun" --seed "$seed" > /tmp/said 2>&1 || { cat /tmp/said; exit 1; }
    cat /tmp/said
    bytes=$(sed -n 's/counted bytes written then: //p' /tmp/said)
    if [ ! -e /tmp/begun ]; then
        figure "write amplification" "refused after $(($(sed -n 's/counted bytes written until it was full: //p' /tmp/said) >> 20)) MiB"
        [ $kind != polder ]
        return
    fi
    written=$(sh -c "$count")
    amplification=$(ratio $((written - $(cat /tmp/begun))) "$bytes" | sed 's/.$//')
    if grep -q '^completed' /tmp/said; then
        figure "write amplification" "$amplification"
    else
        part=$(ratio "$bytes" $((raw << 20)) | sed 's/.$//')
        why=$(sed -n 's/^refused: //p' /tmp/said | sed 's/ (os error [0-9]*)//' | tr 'A-Z' 'a-z')
        figure "write amplification" "$amplification until $part of the device: $why"
        [ $kind != polder ]
    fi
}

# The median of five mounts, each after an unmount.
clean_mounts() {
    for _ in 1 2 3 4 5; do
        detach
        begun=$(now)
        attach
        echo $(($(now) - begun))0
    done | sort -n | sed -n 3p
}

run() {
    choose "$1"
    echo "== $name: $raw MiB, $zones zones for a file system without a conventional part"
    make
    attach
    usable
    detach
    make
    attach
    churn 60
    figure mount "$(clean_mounts) ms"
}

kinds="polder xfs f2fs btrfs"
[ -z "$only" ] || kinds=$only
all() { for each in $kinds; do $1 "$each"; done; }

# Files synced here must exist after the loss of power.
begin_to_write() {
    choose "$1"
    if cp /tmp/contents "$place/synced" 2> /tmp/said && sync "$place/synced" 2> /tmp/said; then
        cp /tmp/contents "$place/not-synced" || :
    else
        cat /tmp/said
        figure "synced before that" "not taken: no space"
        [ $kind != polder ]
    fi
}

recover() {
    choose "$1"
    begun=$(now)
    if attach; then
        took=$(($(now) - begun))0
        figure "mount after a crash" "$took ms"
        if cmp /tmp/contents "$place/synced"; then
            figure "synced before that" there
        else
            figure "synced before that" lost
            [ $kind != polder ]
        fi
    else
        figure "mount after a crash" refused
        [ $kind != polder ]
    fi
}

# The first file system tells which boot this is.
case $kinds in polder*) ;; *) echo "alone there can be polder"; exit 1 ;; esac
choose polder
if polder info "$zoned" > /tmp/said 2>&1; then
    all recover
else
    all run
    all begin_to_write
    echo "vm: reset" > /dev/console
    while :; do :; done
fi
