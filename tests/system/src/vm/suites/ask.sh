# The counts of the emulated devices, and Polder's own.

# Queries the host, with `ask traffic 1` for the first namespace. The answer is a line of NAME=NUMBER.
ask() {
    echo "vm: ask $*" > /dev/console
    read -r answer < /dev/ttyS0
    echo "$answer"
}

# A number in an answer, by its name.
of() { echo " $1 " | sed -n "s/.* $2=\([0-9]*\) .*/\1/p"; }

# Bytes written to some namespaces.
written_to() {
    sum=0
    for number; do sum=$((sum + $(of "$(ask traffic "$number")" written_bytes))); done
    echo $sum
}

# A number of `polder stats`, by its name.
polder_counts() { polder stats --json /mnt | sed -n "s/^ *\"$1\": \([0-9]*\),*/\1/p" | head -n 1; }

# Sets `polder_bytes` and `device_bytes`: the bytes written to a namespace as counted by Polder and by the emulator,
# while there are no writes.
count_both() {
    polder sync /mnt
    polder_bytes=none
    until [ "$(polder_counts device_bytes)" = "$polder_bytes" ]; do
        polder_bytes=$(polder_counts device_bytes)
        device_bytes=$(of "$(ask traffic "$1")" written_bytes)
    done
}

# Whether two numbers differ by a hundredth or less.
are_close() { [ $((($1 - $2) * 100)) -le "$2" ] && [ $((($2 - $1) * 100)) -le "$2" ]; }

# A quotient with three digits after the point.
ratio() { awk "BEGIN { printf \"%.3f\\n\", $1 / $2 }"; }
