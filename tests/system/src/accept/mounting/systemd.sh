# A systemd of our own, in namespaces of our own, mounts a volume that is listed in its /etc/fstab.
# Called with the program, an empty directory and a volume. Calls itself as `inside` (which becomes systemd) and as
# `trial` (which systemd runs). In any case its processes end and its control groups are removed.
set -eu
script=$(readlink -f "$0")

# The control group of this process in the hierarchy that is mounted at $1 with type $2 and options $3.
own() {
    while IFS=: read -r _ names path; do
        case "$2,$3," in
            cgroup2,*) [ -z "$names" ] && echo "$1$path" ;;
            *",$names,"*) [ -n "$names" ] && echo "$1$path" ;;
        esac
    done < /proc/self/cgroup
    return 0
}

outside() {
    place=$2 groups= ended=1
    while read -r _ at type options _; do
        case $type in cgroup | cgroup2) ;; *) continue ;; esac
        group=$(own "$at" "$type" "$options" | tail -n 1)/polder-trial-$$
        if mkdir "$group" 2> /dev/null; then groups="$groups $group"; fi
    done < /proc/self/mounts
    mkfifo "$place/end"
    # Open for both, so that opening does not wait for the other side.
    exec 3<> "$place/end"
    (
        for group in $groups; do echo 0 > "$group/cgroup.procs" || :; done 2> /dev/null
        exec timeout --kill-after=1 40 unshare --fork --kill-child=KILL --pid --mount --cgroup --mount-proc \
            sh "$script" inside "$@"
    ) > "$place/systemd.log" 2>&1 3>&- &
    child=$!
    # Ends the reading if systemd ends without output.
    (wait_for "$child"; echo gone > "$place/end") &
    read -r ended <&3
    kill "$child" 2> /dev/null || :
    wait || :
    for group in $groups; do find "$group" -depth -type d -exec rmdir {} + 2> /dev/null || :; done
    cat "$place/seen" 2> /dev/null || :
    [ "$ended" = 0 ] && exit 0
    echo "the trial ended with $ended"
    tail -n 40 "$place/systemd.log" "$place/trial.log" || :
    exit 1
}

wait_for() { tail --pid="$1" --follow /dev/null; }

inside() {
    polder=$1 place=$2 volume=$3
    mount --make-rprivate /
    sbin=$(readlink -f /sbin)
    mkdir "$place/sbin" "$place/mnt" "$place/auto"
    cp -a "$sbin/." "$place/sbin"
    mount --bind "$place/sbin" "$sbin"
    "$polder" install > /dev/null
    mount -t tmpfs tmpfs /run
    mkdir -p /run/lock /run/units
    mount --bind /run/units /etc/systemd/system
    echo "$volume $place/mnt polder rw,nosuid,noauto,commit=4 0 0" > /run/fstab
    echo "$volume $place/auto polder noauto,x-systemd.automount,x-systemd.mount-timeout=20 0 0" >> /run/fstab
    mount --bind /run/fstab /etc/fstab
    cat > /run/units/trial.service <<UNIT
[Unit]
DefaultDependencies=no
AllowIsolate=yes
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh "$script" trial "$place"
UNIT
    export container=polder-trial
    exec /lib/systemd/systemd --system --unit=trial.service --log-target=console --show-status=no
}

trial() {
    place=$1 result=1
    trap 'echo $result > "$place/end"' EXIT
    exec > "$place/trial.log" 2>&1
    set -x
    unit=$(systemd-escape --path --suffix=mount "$place/mnt")
    systemctl start "$unit" || { systemctl status --full "$unit"; exit 1; }
    findmnt --noheadings --output FSTYPE,OPTIONS --mountpoint "$place/mnt" | grep -q "^fuse.polder *rw,nosuid"
    test "$(systemctl show --property=SubState --value "$unit")" = mounted
    echo systemd > "$place/mnt/by-systemd"
    echo "seen: systemctl start $unit" > "$place/seen"
    systemctl stop "$unit"
    if findmnt --mountpoint "$place/mnt"; then exit 1; fi
    echo "seen: systemctl stop $unit" >> "$place/seen"
    # The first access to the directory mounts it.
    waiting=$(systemd-escape --path --suffix=automount "$place/auto")
    systemctl start "$waiting" || { systemctl status --full "$waiting"; exit 1; }
    findmnt --noheadings --output FSTYPE --mountpoint "$place/auto" | grep -qx autofs
    test "$(cat "$place/auto/by-systemd")" = systemd
    findmnt --noheadings --output FSTYPE --mountpoint "$place/auto" | grep -qx fuse.polder
    echo "seen: $waiting mounted for a reader" >> "$place/seen"
    systemctl stop "$waiting"
    if findmnt --mountpoint "$place/auto"; then exit 1; fi
    echo "seen: systemctl stop $waiting" >> "$place/seen"
    result=0
}

case $1 in
    inside) shift; inside "$@" ;;
    trial) shift; trial "$@" ;;
    *) outside "$@" ;;
esac
