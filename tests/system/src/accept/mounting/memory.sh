# A daemon and a writer in one control group whose memory is smaller than the bytes written.
# Called with the program, a volume, its mount point, a file to copy there, and the limit in bytes.
# Prints how often the limit was met.
set -eu
polder=$1 volume=$2 mnt=$3 source=$4 limit=$5
group=/sys/fs/cgroup/memory/polder-trial-$$ knob=memory.limit_in_bytes
if ! mkdir "$group" 2> /dev/null; then
    group=/sys/fs/cgroup/polder-trial-$$ knob=memory.max
    mkdir "$group"
fi
# The group can be removed when it has no processes, and the daemon runs as long as the mount exists.
trap '"$polder" umount "$mnt" || :; rmdir "$group"' EXIT
echo "$limit" > "$group/$knob"
sh -c 'echo $$ > "$0/cgroup.procs"; exec "$@"' "$group" "$polder" mount -o cache=8M "$volume" "$mnt"
sh -c 'echo $$ > "$0/cgroup.procs"; exec "$@"' "$group" \
    timeout --kill-after=1 60 dd if="$source" of="$mnt/written" bs=1M conv=fsync status=none
if [ -e "$group/memory.failcnt" ]; then
    cat "$group/memory.failcnt"
else
    sed -n 's/^max //p' "$group/memory.events"
fi
