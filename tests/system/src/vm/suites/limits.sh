# Namespaces that let 6, 14 and any number of zones be active: a volume on each is created, mounted, overwritten at 80
# %, unmounted and checked, while many threads write as well. The namespace refuses commands beyond its limit, and the
# emulator counts the refusals.
. /suites/ask

# Sixteen threads that write files of every lifetime and delete them, until there is no $1: they need as many zones as
# may be open. If they find no space, they try again.
crowd() {
    for lifetime in short medium long extreme; do
        mkdir "/mnt/$lifetime"
        polder hint "/mnt/$lifetime" $lifetime
        for number in 1 2 3 4; do
            while kill -0 "$1" 2> /dev/null; do
                head -c 500000 /tmp/contents > "/mnt/$lifetime/$number" || :
                rm -f "/mnt/$lifetime/$number"
            done 2> /dev/null &
        done
    done
}

active() { blkzone report "$1" | grep -c '(\(oi\|oe\|cl\))' || :; }

within() {
    namespace=$1 limit=$2 least=$3
    device=$(cat "/tmp/device-$namespace")
    door=/dev/ng${device#/dev/nvme}
    echo "== $door: at most $limit active"
    polder mkfs --force "$door" | tee /tmp/said
    grep "; $limit may be open and $limit active" /tmp/said
    ask commands "$namespace" > /dev/null
    polder mount "$door" /mnt --log /tmp/log
    mkdir /mnt/files
    polder-sim endure --directory /mnt/files --verify "polder check --data /mnt" --capacity $((256 << 20)) --percent 80 \
        --times 2 --seed "$seed" & load=$!
    crowd $load
    most=0
    while kill -0 $load 2> /dev/null; do
        now=$(active "$device")
        [ "$now" -le "$most" ] || most=$now
    done
    wait $load
    wait
    echo "at most $most zones were found active"
    # With six: all except the second zone of the log, which it only has for a moment now and then. More if more may
    # be active.
    [ "$most" -ge "$least" ]
    [ "$most" -le "$limit" ]
    polder umount /mnt
    polder check --data "$door"
    commands=$(ask commands "$namespace")
    echo "$commands"
    [ "$(of "$commands" appends)" -gt 0 ]
    [ "$(of "$commands" failed)" = 0 ]
}

within 1 6 5
within 2 14 8
# Without a limit Polder chooses: one zone in two, and 32 at most.
within 3 32 8
